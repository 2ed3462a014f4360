"""The probe ``io``: bytes and system calls of this process, as /proc/self/io counts them."""

import os
from typing import Any

from ..probe import Probe
from ._files import open_file


class Io(Probe):
    """Counters before and after each call; a reading takes 2 us."""

    name = "io"
    levels = ("hardware",)
    units = {
        "read_bytes": "B",
        "write_bytes": "B",
        "rchar": "B",
        "wchar": "B",
        "syscr": "count",
        "syscw": "count",
    }
    rising = tuple(units)
    _file: Any = None

    def start(self):
        """Open the kernel's file."""
        self._file = open_file("/proc/self/io")

    def read(self):
        """Return the numbers of the file, by their names there."""
        values = {}
        for line in os.pread(self._file, 512, 0).decode().splitlines():
            name, _, value = line.partition(": ")
            if name in self.units:
                values[name] = int(value)
        return values

    def stop(self):
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
