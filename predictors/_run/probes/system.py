"""What the kernel counts for this process in /proc: input and output, and memory."""

import os

from . import Probe, ProbeUnavailable

_PAGE = os.sysconf("SC_PAGE_SIZE")


class Io(Probe):
    """Bytes and calls of this process, from /proc/self/io, before and after each call (2 us a
    reading).
    """

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
    _file = None

    def start(self):
        """Open the kernel's file."""
        self._file = _open("/proc/self/io")

    def read(self):
        """Return its numbers."""
        lines = os.pread(self._file, 512, 0).decode().splitlines()
        pairs = [line.split(": ") for line in lines]
        return {name: int(value) for name, value in pairs if name in self.units}

    def stop(self):
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


class Memory(Probe):
    """Resident memory of this process, from /proc/self/statm, every 5 ms and between calls."""

    name = "memory"
    levels = ("hardware",)
    units = {"resident": "B"}
    period = 0.005
    _file = None

    def start(self):
        """Open the kernel's file."""
        self._file = _open("/proc/self/statm")

    def read(self):
        """Return the resident bytes."""
        return {"resident": int(os.pread(self._file, 128, 0).split()[1]) * _PAGE}

    def stop(self):
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _open(path):
    try:
        return os.open(path, os.O_RDONLY)
    except OSError as error:
        raise ProbeUnavailable("%s: %s" % (path, error.strerror)) from None
