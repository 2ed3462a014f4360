"""The cores of this host that are near each other."""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from pathlib import Path

__all__ = ["cores_beside"]

_CPUS = Path("/sys/devices/system/cpu")


def cores_beside(cores: Collection[int], allowed: Collection[int] = ()) -> list[int]:
    """Return as many other cores with the same memory; none where there are too few.

    This process may use them, and they are ``allowed`` if any are. Memory that a process has taken
    stays where it is (numa(7)), so that a process should not be moved to cores of another node.
    """
    if not cores or not hasattr(os, "sched_getaffinity"):
        return []
    near = os.sched_getaffinity(0).intersection(*(_node_of(core) for core in cores))
    if allowed:
        near &= set(allowed)
    free = sorted(near.difference(cores), key=lambda core: (core < min(cores), core))
    return free[: len(cores)] if len(free) >= len(cores) else []


def _node_of(core: int) -> set[int]:
    """Return the cores of a core's memory node; only itself where the kernel doesn't tell."""
    found = {core}
    for path in (_CPUS / f"cpu{core}").glob("node*/cpulist"):
        for first, last in re.findall(r"(\d+)(?:-(\d+))?", path.read_text()):
            found.update(range(int(first), int(last or first) + 1))
    return found
