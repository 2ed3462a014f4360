"""The datasets of the zoo, composed of files of Python packages."""
