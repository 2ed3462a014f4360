"""What a case needs before it can be measured: files, environments, hosts."""
