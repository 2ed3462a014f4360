"""This process as the kernel sees it: memory in bytes, time in seconds, cores.

Linux shows more than other systems, on which getrusage stands in. Where a server computes instead
of this process, ``watch_server`` has its memory and CPU time told, with all that it started.
"""

import contextlib
import ctypes
import gc
import glob
import os
import resource
import sys
import time
from typing import Any, Collection, Dict, List, Mapping, Optional, Set

_PR_SET_TIMERSLACK = 29  # of prctl(2)
_CPUCLOCK_SCHED = 2  # the clock of a process's CPU time, as clock_getcpuclockid(3) has it
_libc = ctypes.CDLL(None)


class _Watched:
    """The processes whose memory and CPU time are told: this one, or those of a server.

    ``server`` is the process that was started; 0 for a server that isn't ours, of which nothing is
    seen; None without one. ``spent`` has the CPU time of each of its processes, also of those that
    have ended since.
    """

    server: Optional[int] = None
    processes: List[Any] = ["self"]
    spent: Dict[int, float] = {}


def watch_server(server: Optional[int]) -> None:
    """Tell the memory and CPU time of a server's processes from now on; None: of this one."""
    _Watched.server = server
    _Watched.spent = {}
    find_processes()


def find_processes() -> None:
    """Look which processes a server has now; those that it starts later aren't told until then.

    Raises RuntimeError where the one that was started has ended: what is left isn't known as its.
    """
    server = _Watched.server
    if server and not unseen() and _has_ended(server):
        raise RuntimeError(
            "the server's process has ended, and must stay in the foreground; the log has what it "
            "wrote"
        )
    _Watched.processes = ["self"] if server is None else family(server) if server else []


def has_server() -> bool:
    """Return whether a server computes instead of this process."""
    return _Watched.server is not None


def unseen() -> str:
    """Return the reason why memory, CPU time and energy aren't seen; "" where they are."""
    if _Watched.server == 0:
        return "the server was not started here, so that its processes aren't seen"
    if _Watched.server is not None and not sys.platform.startswith("linux"):
        return "this system doesn't show other processes"
    return ""


def family(root: int) -> List[int]:
    """Return a process that runs and all that descend from it; only itself without /proc."""
    children: Dict[int, List[int]] = {}
    for path in glob.glob("/proc/[0-9]*/stat"):
        with contextlib.suppress(OSError), open(path, "rb") as file:  # it has ended
            number, _, fields = file.read().rpartition(b")")
            state, parent = fields.split()[:2]
            if state not in b"ZX":
                children.setdefault(int(parent), []).append(int(number.split()[0]))
    found = [root]
    for process in found:
        found += children.get(process, [])
    return found


def _has_ended(process):
    try:
        with open("/proc/%d/stat" % process, "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] in b"ZX"
    except OSError:
        return True


def rss() -> int:
    """Return the resident set size now, in bytes; where it can't be read, the peak instead."""
    if has_server():
        return sum(_read_status("VmRSS:", process) or 0 for process in _Watched.processes)
    return _read_status("VmRSS:") or peak_rss()


def peak_rss(process: Any = "self") -> int:
    """Return the largest resident set size since the start, or since reset_peak_rss, in bytes."""
    peak = _read_status("VmHWM:", process)
    if peak or process != "self":
        return peak or 0
    # getrusage(2): kilobytes on Linux, bytes on macOS
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def reset_peak_rss(process: Any = "self") -> bool:
    """Begin a new peak (proc(5), clear_refs, value 5); return whether the kernel did."""
    try:
        with open("/proc/%s/clear_refs" % process, "w") as file:
            file.write("5")
        return True
    except OSError:
        return False


class PeakMemory:
    """The most resident bytes since it began, without pages of programs and libraries.

    Of these the kernel maps few or many around one that is read, as it has them in memory. ``held``
    is what was resident when it was read. Of a server it is the sum of the processes' own peaks,
    which were not all at once, and a page that two of them share is in both.
    """

    def __init__(self, process: Any = "self") -> None:
        self.held = 0
        self._process = process
        self._largest = 0
        self._programs = 0
        self._of_server: Dict[int, PeakMemory] = {}

    def begin(self) -> bool:
        """Begin anew; return whether the kernel did, else it is that since the process began."""
        self._largest = 0
        mapped, self._programs = _resident_bytes(self._process)
        self.held = (mapped or rss()) - self._programs
        return reset_peak_rss(self._process)

    def read(self) -> int:
        """Return it."""
        if not has_server():
            return self._read()
        find_processes()
        before = self._of_server
        self._of_server = {}
        for process in _Watched.processes:
            self._of_server[process] = before.get(process) or PeakMemory(process)
        return sum(each._read() for each in self._of_server.values())

    def _read(self):
        """Return it. Pages of programs that are read later are those of another peak.

        The kernel may have taken pages that there were, which are in the peak then, and its peak
        may lack what is resident now by some pages a core.
        """
        peak = peak_rss(self._process)
        mapped, programs = _resident_bytes(self._process)
        self.held = (mapped or peak) - programs
        self._largest = max(self._largest, peak - max(self._programs, programs), self.held)
        self._programs = programs
        reset_peak_rss(self._process)
        return self._largest


def own_memory() -> int:
    """Return the bytes that this process holds, resident or swapped out, without pages of files.

    Of a server, those of all processes that it has by now.
    /proc/self/statm has the resident set at once, but since Linux 6.2 up to 64 pages a core off.
    """
    held = 0
    find_processes()
    for process in _Watched.processes:
        path = "/proc/%s/smaps_rollup" % process
        held += _read_sum(path, ("Anonymous:", "Swap:")) or _read_status("VmRSS:", process) or 0
    return held or rss()


class _Mallinfo2(ctypes.Structure):
    """struct mallinfo2 of mallinfo(3): ``hblkhd`` is mapped, ``uordblks`` taken from arenas."""

    _fields_ = [
        ("unused", ctypes.c_size_t * 4),
        ("hblkhd", ctypes.c_size_t),
        ("unused_too", ctypes.c_size_t * 2),
        ("uordblks", ctypes.c_size_t),
        ("unused_either", ctypes.c_size_t * 2),
    ]


def allocated_memory() -> int:
    """Return the bytes that malloc gave out and didn't get back; 0 where it doesn't say.

    A leak that fits into what was freed before adds to these only. glibc says it since 2.33.
    """
    mallinfo2 = getattr(_libc, "mallinfo2", None)
    if mallinfo2 is None or has_server():
        return 0
    mallinfo2.restype = _Mallinfo2
    found = mallinfo2()
    return found.uordblks + found.hblkhd


def collect_garbage() -> None:
    """Free what Python would free some time later; what is left isn't looked at the next time."""
    gc.collect()
    freeze = getattr(gc, "freeze", None)  # of Python 3.7
    if freeze is not None:
        freeze()


def count_threads() -> int:
    """Return the number of this process's threads; 0 where the system doesn't say."""
    return _count_entries("task")


def count_descriptors() -> int:
    """Return the number of open file descriptors; 0 where the system doesn't say."""
    return _count_entries("fd")


class BusyThreads:
    """The threads of this process that gain CPU time from now on."""

    def __init__(self) -> None:
        self._before = _thread_times()

    def count(self) -> Optional[int]:
        """Return how many gained a hundredth of what the busiest one did, or more.

        None where the kernel doesn't tell.
        """
        gained = [now - self._before.get(thread, 0) for thread, now in _thread_times().items()]
        largest = max(gained, default=0)
        return sum(100 * each >= largest for each in gained) if largest else None


def _thread_times():
    """Return the nanoseconds of CPU time of each thread: field 1 of schedstat."""
    found = {}
    for process in _Watched.processes:
        for path in glob.glob("/proc/%s/task/*/schedstat" % process):
            with contextlib.suppress(OSError), open(path) as file:  # of a thread that has ended
                found[path] = int(file.read().split()[0])
    return found


def use_cores(cores: Collection[int]) -> None:
    """Hold this thread, and all that it starts, to these cores.

    Raises OSError where the system does not give all of them.
    """
    if not hasattr(os, "sched_setaffinity"):
        raise OSError("this system holds no process to cores")
    os.sched_setaffinity(0, cores)
    given = os.sched_getaffinity(0)
    if set(given) != set(cores):
        raise OSError("asked for cores %s, the system gave %s" % (sorted(cores), sorted(given)))


def move_threads(places: Mapping[int, int]) -> bool:
    """Move all threads of this process group, and of a server, from cores to others, one for one.

    A thread that a framework has bound to some of the cores is bound to those in their place. Those
    that start meanwhile may have the cores of one that was not yet moved, and are moved, too.
    Return whether any was on other cores before.
    """
    were_beyond = False
    moved: Set[int] = set()
    fresh = _threads_of_group()
    while fresh:
        for thread in fresh:
            with contextlib.suppress(OSError):  # it has ended, or is the kernel's (of io_uring)
                held = os.sched_getaffinity(thread)
                were_beyond |= not moved and not held.issubset(places)
                os.sched_setaffinity(thread, {places.get(core, core) for core in held})
        moved |= fresh
        fresh = _threads_of_group() - moved
    return were_beyond


def _threads_of_group() -> Set[int]:
    found: Set[int] = set()
    group = os.getpgrp()
    server = family(_Watched.server) if _Watched.server else []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):  # it has ended
            if os.getpgid(int(name)) == group or int(name) in server:
                found.update(map(int, os.listdir("/proc/%s/task" % name)))
    return found


def cores() -> Optional[List[int]]:
    """Return the cores that this process may use; None where the system doesn't say."""
    if not hasattr(os, "sched_getaffinity"):
        return None
    return sorted(os.sched_getaffinity(0))


def use_timer_slack(nanoseconds: int) -> None:
    """Let sleeps of the calling thread end so late at most; 0 is the default of 50 us.

    Only Linux can (prctl(2), PR_SET_TIMERSLACK); elsewhere nothing happens. With 1 ns a sleep ends
    15 to 25 us late instead of 70.
    """
    if sys.platform.startswith("linux"):
        _libc.prctl(_PR_SET_TIMERSLACK, nanoseconds, 0, 0, 0)


class QueueWait:
    """The time that the calling thread has waited for a core: field 2 of schedstat.

    With ``of_others`` the CPU time of this process's other threads is no wait where the thread has
    one core: they are a part of what is measured, and had that core. What they ran while the thread
    slept is left out with it, so a wait for other programs is rather told too short than too long.
    The CPU time of a server is none on any number of cores.
    Readings only grow, and take 1.3 us. ``available`` is False where the kernel doesn't count the
    wait; readings are 0.0 then.
    """

    def __init__(self, of_others=False):
        self._file: Any = None
        with contextlib.suppress(OSError):
            self._file = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
        self.available = self._file is not None
        self._thread_time: Any = getattr(time, "thread_time", None)  # Python 3.6 has none
        may_share = has_server() or len(os.sched_getaffinity(0)) == 1 if self.available else False
        if not of_others or not may_share:
            self._thread_time = None
        self._waited = self._counted = 0.0
        self._own = self._time_of_others() if self._thread_time else 0.0

    def read(self):
        """Return the seconds waited since the thread began."""
        if not self.available:
            return 0.0
        waited = int(os.pread(self._file, 64, 0).split()[1]) * 1e-9
        if self._thread_time is None:
            return waited
        own = self._time_of_others()
        self._counted += max(0.0, waited - self._waited - max(0.0, own - self._own))
        self._waited, self._own = waited, own
        return self._counted

    def _time_of_others(self):
        of_server = cpu_time() if has_server() else 0.0
        return time.process_time() - self._thread_time() + of_server

    def close(self):
        """Close the kernel's file."""
        if self.available:
            os.close(self._file)


def cpu_time() -> float:
    """Return the CPU seconds of all threads of this process, or of a server's processes."""
    if _Watched.server is None:
        return time.process_time()
    spent = _Watched.spent
    for process in _Watched.processes:
        with contextlib.suppress(OSError):  # it has ended
            spent[process] = time.clock_gettime(~process << 3 | _CPUCLOCK_SCHED)
    return sum(spent.values())


def _read_status(key, process="self"):
    """Return a field of /proc/PROCESS/status in bytes, None where there is none."""
    return _read_sum("/proc/%s/status" % process, (key,))


def _read_sum(path, keys):
    """Return the sum of fields in kilobytes as bytes, None where there is none of them."""
    found = []
    try:
        with open(path) as file:
            for line in file:
                if line.startswith(keys):
                    found.append(int(line.split()[1]) * 1024)
    except OSError:
        pass
    return sum(found) if found else None


def _resident_bytes(process):
    """Return what is resident, and what of it are pages of files that are mapped to be executed.

    What a process has changed of these is its own. Both are 0 where the system doesn't say.
    """
    total = 0
    pages: Dict[Any, int] = {}
    programs = set()
    with contextlib.suppress(OSError), open("/proc/%s/smaps" % process) as file:
        for line in file:
            words = line.split()
            if not words[0].endswith(":"):
                mapped = tuple(words[3:5])  # device and inode
                if "x" in words[1]:
                    programs.add(mapped)
            elif words[0] == "Rss:":
                total += int(words[1])
                pages[mapped] = pages.get(mapped, 0) + int(words[1])
            elif words[0] == "Anonymous:":
                pages[mapped] -= int(words[1])
    return 1024 * total, 1024 * sum(pages[mapped] for mapped in programs)


def _count_entries(folder):
    count = 0
    for process in _Watched.processes:
        with contextlib.suppress(OSError):
            count += len(os.listdir("/proc/%s/%s" % (process, folder)))
    return count
