"""Workers on other hosts: installation, workspaces, and the transfer of files."""
