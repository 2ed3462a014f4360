"""The cores of all threads of an agent and of the processes that it started."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Mapping

__all__ = ["are_beyond", "move_threads"]


def move_threads(group: int, places: Mapping[int, int]) -> None:
    """Move all threads of a process group from cores to others, one for one.

    A thread that a framework has bound to some of the cores is bound to those in their place. Those
    that start meanwhile may have the cores of one that was not yet moved, and are moved, too.
    """
    moved: set[int] = set()
    while fresh := _threads_of(group) - moved:
        for thread in fresh:
            with contextlib.suppress(OSError):  # it has ended, or is the kernel's (of io_uring)
                held = os.sched_getaffinity(thread)
                os.sched_setaffinity(thread, {places.get(core, core) for core in held})
        moved |= fresh


def are_beyond(group: int, cores: Collection[int]) -> bool:
    """Return whether any thread of a process group may use other cores than these."""
    for thread in _threads_of(group):
        with contextlib.suppress(ProcessLookupError):
            if not os.sched_getaffinity(thread).issubset(cores):
                return True
    return False


def _threads_of(group: int) -> set[int]:
    found: set[int] = set()
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):  # it has ended
            if os.getpgid(int(name)) == group:
                found.update(map(int, os.listdir(f"/proc/{name}/task")))
    return found
