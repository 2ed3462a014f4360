"""CPU counters by perf_event_open(2): hardware events where the machine has them, software events
always.

Each event is opened alone, for each thread that there is (with ``inherit`` for those that they
start): Linux 6.18 loses what inherited members of a group counted when their thread ends; single
events lose nothing.
"""

import ctypes
import errno
import os
import platform
import struct

from . import Probe, ProbeUnavailable

_SYSCALL = {"x86_64": 298, "aarch64": 241, "riscv64": 241, "ppc64le": 319, "s390x": 331}
_HARDWARE, _SOFTWARE, _CACHE = 0, 1, 3
_MISS = 1 << 16

EVENTS = (
    ("cycles", _HARDWARE, 0),
    ("instructions", _HARDWARE, 1),
    ("cache-references", _HARDWARE, 2),
    ("cache-misses", _HARDWARE, 3),
    ("branches", _HARDWARE, 4),
    ("branch-misses", _HARDWARE, 5),
    ("stalled-cycles-frontend", _HARDWARE, 7),
    ("stalled-cycles-backend", _HARDWARE, 8),
    ("L1-dcache-load-misses", _CACHE, 0 | _MISS),
    ("LLC-loads", _CACHE, 2),
    ("LLC-load-misses", _CACHE, 2 | _MISS),
    ("dTLB-load-misses", _CACHE, 3 | _MISS),
    ("task-clock", _SOFTWARE, 1),
    ("page-faults", _SOFTWARE, 2),
    ("context-switches", _SOFTWARE, 3),
    ("cpu-migrations", _SOFTWARE, 4),
    ("minor-faults", _SOFTWARE, 5),
    ("major-faults", _SOFTWARE, 6),
)
_IN_KERNEL = (
    "context-switches",
    "cpu-migrations",
)  # where an event without the kernel's part counts nothing

_SIZE = 112  # of perf_event_attr, version 5
_ENABLED_AND_RUNNING = 1 | 2
_INHERIT, _EXCLUDE_KERNEL, _EXCLUDE_HV = 1 << 1, 1 << 5, 1 << 6
_CLOEXEC = 8
_MOST_FILES = 2048
_DENIED = "not permitted: kernel.perf_event_paranoid is %s, it takes %d or less, or CAP_PERFMON"


class Perf(Probe):
    """Counts of the whole process, scaled where the kernel had to take turns between events."""

    name = "perf"
    levels = ("hardware",)
    units = dict({event[0]: "count" for event in EVENTS}, **{"task-clock": "ns"})
    rising = tuple(units)

    def start(self):
        """Open every event that can be; the others are named in ``missing``."""
        self._files = {}
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._number = _SYSCALL.get(platform.machine())
        if platform.system() != "Linux" or self._number is None:
            raise ProbeUnavailable(
                "perf_event_open is not known for %s %s" % (platform.system(), platform.machine())
            )
        threads = _threads()
        for name, kind, config in EVENTS:
            if len(self._files) * len(threads) > _MOST_FILES:
                self.missing[name] = "too many threads (%d) to count it for each" % len(threads)
                continue
            self._open(name, kind, config, threads)
        if not self._files:
            raise ProbeUnavailable("; ".join(sorted(set(self.missing.values()))))

    def read(self):
        """Return the counts of all threads together."""
        values = {}
        for name, files in self._files.items():
            counts = [_scaled(os.read(file, 24)) for file in files]
            if None in counts:
                self.missing[name] = "the kernel had no turn for it among the others"
            else:
                values[name] = sum(counts)
        return values

    def stop(self):
        """Close the kernel's files."""
        for files in self.__dict__.pop("_files", {}).values():
            for file in files:
                os.close(file)

    def _open(self, name, kind, config, threads):
        files = []
        try:
            for thread in threads:
                try:
                    files.append(self._event(name, kind, config, thread))
                except ProcessLookupError:  # ended meanwhile
                    continue
        except OSError as error:
            self.missing[name] = _reason(error, 1 if name in _IN_KERNEL else 2)
            for file in files:
                os.close(file)
            return
        self._files[name] = files

    def _event(self, name, kind, config, thread):
        """Open one event for one thread.

        Where the kernel's part isn't permitted, without it if that means anything.
        """
        try:
            return self._call(kind, config, thread, _INHERIT)
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EPERM) or name in _IN_KERNEL:
                raise
        return self._call(kind, config, thread, _INHERIT | _EXCLUDE_KERNEL | _EXCLUDE_HV)

    def _call(self, kind, config, thread, flags):
        head = struct.pack("=IIQQQQQ", kind, _SIZE, config, 0, 0, _ENABLED_AND_RUNNING, flags)
        attributes = ctypes.create_string_buffer(head, _SIZE)
        arguments = [ctypes.c_long(value) for value in (thread, -1, -1, _CLOEXEC)]
        file = self._libc.syscall(ctypes.c_long(self._number), attributes, *arguments)
        if file < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))  # of the class that belongs to the number
        return file


def _threads():
    return sorted(int(name) for name in os.listdir("/proc/self/task"))


def _scaled(data):
    value, enabled, running = struct.unpack("=QQQ", data)
    if running == enabled:
        return value
    return value * enabled / running if running else None


def _reason(error, least_strict):
    if error.errno in (errno.ENOENT, errno.EOPNOTSUPP, errno.ENODEV, errno.EINVAL):
        return "this machine has no such counter (%s), as most virtual machines" % error.strerror
    if error.errno in (errno.EACCES, errno.EPERM):
        return _DENIED % (_paranoid(), least_strict)
    if error.errno == errno.ENOSYS:
        return "this kernel, or its container, has no perf_event_open"
    return error.strerror


def _paranoid():
    try:
        with open("/proc/sys/kernel/perf_event_paranoid") as file:
            return file.read().strip()
    except OSError:
        return "unknown"
