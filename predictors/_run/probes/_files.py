"""Reading of the kernel's small text files, for probes."""

import os

from ..probe import ProbeUnavailable


def read_text(path: str) -> str:
    """Return the text of a file of /sys without the white space around it; raises OSError."""
    with open(path) as file:
        return file.read().strip()


def open_file(path: str) -> int:
    """Return a descriptor to read from; raises ProbeUnavailable where the kernel refuses."""
    try:
        return os.open(path, os.O_RDONLY)
    except OSError as error:
        raise ProbeUnavailable("%s: %s" % (path, error.strerror)) from None
