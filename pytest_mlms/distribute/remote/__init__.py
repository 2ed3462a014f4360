"""Workers on other hosts: installation, workspaces, and the files that are transferred."""
