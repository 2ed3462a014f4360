"""Provision of a case before it is measured: its files, its environments, the host."""
