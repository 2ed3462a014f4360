"""The probe ``memory``: resident memory of this process, from /proc/self/statm."""

import os
from typing import Any

from ..probe import Probe
from ._files import open_file

_PAGE = os.sysconf("SC_PAGE_SIZE")  # bytes


class Memory(Probe):
    """Resident bytes every 5 ms and between calls."""

    name = "memory"
    levels = ("hardware",)
    units = {"resident": "B"}
    period = 0.005
    _file: Any = None

    def start(self):
        """Open the kernel's file."""
        self._file = open_file("/proc/self/statm")

    def read(self):
        """Return the resident bytes."""
        fields = os.pread(self._file, 128, 0).split()
        return {"resident": int(fields[1]) * _PAGE}

    def stop(self):
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
