"""What the kernel says of this process: memory in bytes, time in seconds.

Linux first, getrusage elsewhere.
"""

import os
import resource
import signal
import sys
import time


def rss():
    """Return the resident set size now, in bytes; where it can't be read, the peak instead."""
    return _status("VmRSS:") or peak_rss()


def peak_rss():
    """Return the largest resident set size since the start, or since reset_peak_rss, in bytes."""
    in_bytes = (
        1 if sys.platform == "darwin" else 1024
    )  # getrusage(2): kilobytes on Linux, bytes on macOS
    return _status("VmHWM:") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * in_bytes


def reset_peak_rss():
    """Begin a new peak (proc(5), clear_refs, value 5); return whether the kernel did."""
    try:
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
        return True
    except OSError:
        return False


def use_cores(cores):
    """Hold this thread and all that it starts to these cores.

    Raises OSError where it can't be held to each.
    """
    if not hasattr(os, "sched_setaffinity"):
        raise OSError("this system holds no process to cores")
    os.sched_setaffinity(0, cores)
    if set(os.sched_getaffinity(0)) != set(cores):
        raise OSError(
            "asked for cores %s, the system gave %s"
            % (sorted(cores), sorted(os.sched_getaffinity(0)))
        )


def cores():
    """Return the cores that this process may use; None where the system doesn't say."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None


def _status(key):
    try:
        with open("/proc/self/status") as file:
            for line in file:
                if line.startswith(key):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return None


def wake_with_parents_end():
    """Have the kernel continue this process when the one that started it ends (prctl(2)), so that
    it can end itself.

    While it is stopped it can't see that; ended by the kernel at once, it would leave its children
    behind. Return whether the kernel will: only Linux can, and only for the process itself that was
    started, not for its child.
    """
    if not sys.platform.startswith("linux") or os.getpgrp() != os.getpid():
        return False
    import ctypes

    return ctypes.CDLL(None).prctl(1, signal.SIGCONT, 0, 0, 0) == 0  # PR_SET_PDEATHSIG


class QueueWait:
    """Reads how long the calling thread has waited for a core: field 2 of schedstat, in seconds
    (1.3 us a read).

    ``available`` is False where the kernel doesn't count it; reading then gives 0.0.
    """

    def __init__(self):
        try:
            self._file = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
        except OSError:
            self._file = None
        self.available = self._file is not None

    def read(self):
        """Return the seconds waited since the thread began."""
        return int(os.pread(self._file, 64, 0).split()[1]) * 1e-9 if self.available else 0.0

    def close(self):
        """Close the kernel's file."""
        if self.available:
            os.close(self._file)


cpu_time = time.process_time
"""Return the CPU seconds of all threads of this process."""
