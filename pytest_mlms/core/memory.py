"""Memory that this process may still take, to refuse what would not fit before it is made."""

from __future__ import annotations

import contextlib

from pytest_mlms.core.cgroups import cgroup_folders, memory_left, memory_limits
from pytest_mlms.core.units import format_quantity

_LARGEST = 1 << 80  # bytes that are shown; larger numbers may not fit into a float


def available_memory() -> int:
    """Return the bytes that the machine and a container's limit can give without swapping."""
    import psutil

    available = int(psutil.virtual_memory().available)
    with contextlib.suppress(OSError):  # control groups are Linux's
        for folder in cgroup_folders():
            available = min([available, *memory_limits(folder), *memory_left(folder)])
    return available


def shortage(needed: int) -> str:
    """Return how much ``needed`` bytes are more than there is, as text; "" where they fit."""
    available = available_memory()
    if needed <= available:
        return ""
    free = format_quantity(available, "B")
    amount = format_quantity(min(needed, _LARGEST), "B")
    return f"{amount} of memory, and {free} are free"
