"""The ``mlms`` command, one file for each subcommand."""
