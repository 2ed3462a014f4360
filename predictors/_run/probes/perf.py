"""The probe ``perf``: CPU counters by perf_event_open(2).

Hardware events are counted where the machine has them, software events always. Each event is
opened alone, for each thread that there is, with ``inherit`` for those that they start. Groups of
events would need fewer files, but Linux 6.18 loses what inherited members of a group counted when
their thread ends; single events lose nothing.
"""

import ctypes
import errno
import os
import platform
import struct
from typing import Any, NamedTuple

from ..probe import Probe, ProbeUnavailable

_SYSCALL = {"x86_64": 298, "aarch64": 241, "riscv64": 241, "ppc64le": 319, "s390x": 331}
_HARDWARE, _SOFTWARE, _CACHE = 0, 1, 3
_MISS = 1 << 16


class PerfEvent(NamedTuple):
    """An event by its name, and as ``type`` and ``config`` of perf_event_attr."""

    name: str
    type: int
    config: int


EVENTS = (
    PerfEvent("cycles", _HARDWARE, 0),
    PerfEvent("instructions", _HARDWARE, 1),
    PerfEvent("cache-references", _HARDWARE, 2),
    PerfEvent("cache-misses", _HARDWARE, 3),
    PerfEvent("branches", _HARDWARE, 4),
    PerfEvent("branch-misses", _HARDWARE, 5),
    PerfEvent("stalled-cycles-frontend", _HARDWARE, 7),
    PerfEvent("stalled-cycles-backend", _HARDWARE, 8),
    PerfEvent("L1-dcache-load-misses", _CACHE, 0 | _MISS),
    PerfEvent("LLC-loads", _CACHE, 2),
    PerfEvent("LLC-load-misses", _CACHE, 2 | _MISS),
    PerfEvent("dTLB-load-misses", _CACHE, 3 | _MISS),
    PerfEvent("task-clock", _SOFTWARE, 1),
    PerfEvent("page-faults", _SOFTWARE, 2),
    PerfEvent("context-switches", _SOFTWARE, 3),
    PerfEvent("cpu-migrations", _SOFTWARE, 4),
    PerfEvent("minor-faults", _SOFTWARE, 5),
    PerfEvent("major-faults", _SOFTWARE, 6),
)
# Events that count nothing without the kernel's part.
_IN_KERNEL = ("context-switches", "cpu-migrations")

_SIZE = 112  # bytes of perf_event_attr, version 5
_ENABLED_AND_RUNNING = 1 | 2
_INHERIT, _EXCLUDE_KERNEL, _EXCLUDE_HV = 1 << 1, 1 << 5, 1 << 6
_CLOEXEC = 8
_MOST_FILES = 2048
_NOT_PERMITTED = (errno.EACCES, errno.EPERM)
_NOT_THERE = (errno.ENOENT, errno.EOPNOTSUPP, errno.ENODEV, errno.EINVAL)
_TURNS = "counted in %.0f %% of the time, and scaled: the kernel took turns between events"
_DENIED = "not permitted: kernel.perf_event_paranoid is %s, it takes %d or less, or CAP_PERFMON"


class Perf(Probe):
    """Counts of the whole process.

    Where the kernel takes turns between events, what one counted between two readings is scaled to
    the time between these, and ``missing`` says so.
    """

    name = "perf"
    levels = ("hardware",)
    units = dict({event.name: "count" for event in EVENTS}, **{"task-clock": "ns"})
    rising = tuple(units)

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self._counts = {}  # by the event's name
        self._number: Any = _SYSCALL.get(platform.machine())

    def start(self):
        """Open every event that can be opened; the others are named in ``missing``."""
        self._libc = ctypes.CDLL(None, use_errno=True)
        if platform.system() != "Linux" or self._number is None:
            raise ProbeUnavailable(
                "perf_event_open is not known for %s %s" % (platform.system(), platform.machine())
            )
        threads = _threads()
        for event in EVENTS:
            if len(self._counts) * len(threads) > _MOST_FILES:
                reason = "too many threads (%d) to count it for each" % len(threads)
                self.missing[event.name] = reason
            else:
                self._open(event, threads)
        if not self._counts:
            raise ProbeUnavailable("; ".join(sorted(set(self.missing.values()))))

    def read(self):
        """Return the counts of all threads together; an event that had no turn is left out."""
        values = {name: count.read() for name, count in self._counts.items()}
        return {name: value for name, value in values.items() if value is not None}

    def stop(self):
        """Close the kernel's files."""
        for name, count in self._counts.items():
            if count.share < 1:
                self.missing[name] = _TURNS % (100 * count.share)
            _close(count.files)
        self._counts = {}

    def _open(self, event, threads):
        """Open an event for each thread, or note why that cannot be done."""
        files = []
        try:
            for thread in threads:
                try:
                    files.append(self._open_for(event, thread))
                except ProcessLookupError:  # the thread ended meanwhile
                    continue
        except OSError as error:
            least_strict = 1 if event.name in _IN_KERNEL else 2
            self.missing[event.name] = _reason(error, least_strict)
            _close(files)
        else:
            self._counts[event.name] = Count(files)

    def _open_for(self, event, thread):
        """Return the file of an event for one thread.

        Where the kernel's part is not permitted, the event is opened without it if it still counts
        something then.
        """
        try:
            return self._call(event, thread, _INHERIT)
        except OSError as error:
            if error.errno not in _NOT_PERMITTED or event.name in _IN_KERNEL:
                raise
        return self._call(event, thread, _INHERIT | _EXCLUDE_KERNEL | _EXCLUDE_HV)

    def _call(self, event, thread, flags):
        head = struct.pack(
            "=IIQQQQQ", event.type, _SIZE, event.config, 0, 0, _ENABLED_AND_RUNNING, flags
        )
        attributes = ctypes.create_string_buffer(head, _SIZE)
        arguments = [ctypes.c_long(value) for value in (thread, -1, -1, _CLOEXEC)]
        file = self._libc.syscall(ctypes.c_long(self._number), attributes, *arguments)
        if file < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))  # of the class that belongs to the number
        return file


def _threads():
    return sorted(int(name) for name in os.listdir("/proc/self/task"))


def _close(files):
    for file in files:
        os.close(file)


class Count:
    """The count of an event over all of its files, one for each thread."""

    def __init__(self, files):
        self.files = files
        self._total = 0.0
        self._last = [(0, 0, 0) for _ in files]

    @property
    def share(self):
        """The part of the time that the event was enabled in which it was counted."""
        enabled = sum(enabled for _, enabled, _ in self._last)
        return sum(running for _, _, running in self._last) / enabled if enabled else 1

    def read(self):
        """Return the count, None where a file had no turn since the last reading."""
        return self.add([struct.unpack("=QQQ", os.read(file, 24)) for file in self.files])

    def add(self, readings):
        """Take the value, the time enabled and the time running of each file."""
        added = 0.0
        for reading, last in zip(readings, self._last):
            value, enabled, running = (now - before for now, before in zip(reading, last))
            if enabled and not running:
                return None
            if running:
                added += value if running == enabled else value * enabled / running
        self._last = readings
        self._total += added
        return self._total


def _reason(error, least_strict):
    if error.errno in _NOT_THERE:
        return "this machine has no such counter (%s), as most virtual machines" % error.strerror
    if error.errno in _NOT_PERMITTED:
        return _DENIED % (_paranoid(), least_strict)
    if error.errno == errno.ENOSYS:
        return "this kernel, or its container, has no perf_event_open"
    return error.strerror


def _paranoid():
    """Return the text of the kernel's setting that says who may count what."""
    try:
        with open("/proc/sys/kernel/perf_event_paranoid") as file:
            return file.read().strip()
    except OSError:
        return "unknown"
