"""Memory that this process may still take, and the control groups (1 and 2) that bound it."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

from pytest_mlms.core.units import format_quantity

_ROOT = Path("/sys/fs/cgroup")


def cgroup_folders() -> list[Path]:
    """Return the folders of our control groups and of those above them."""
    folders = []
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, name = line.split(":", 2)
        for root in {_ROOT, _ROOT / controllers}:
            folder = root / name.lstrip("/")
            for above in (folder, *folder.parents):
                if above.is_relative_to(root):
                    folders.append(above)
    return folders


def cpu_limits(folder: Path) -> Iterator[float]:
    """Yield how many CPUs a control group may use on average, if it has a limit."""
    with contextlib.suppress(OSError, ValueError):
        quota, period = (folder / "cpu.max").read_text().split()
        yield float(quota) / float(period)
    with contextlib.suppress(OSError, ValueError):
        microseconds = positive(folder / "cpu.cfs_quota_us")
        yield microseconds / positive(folder / "cpu.cfs_period_us")


def memory_limits(folder: Path) -> Iterator[int]:
    """Yield the limit of memory of a control group in bytes, if it has one."""
    for name in ("memory.max", "memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):
            yield positive(folder / name)


def memory_left(folder: Path) -> Iterator[int]:
    """Yield the bytes that a control group with a limit still has; caches of files can be freed."""
    names = (
        ("memory.max", "memory.current", "inactive_file"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    )
    for most, current, cached in names:
        with contextlib.suppress(OSError, ValueError):
            limit = positive(folder / most)
            used = int((folder / current).read_text())
            for line in (folder / "memory.stat").read_text().splitlines():
                name, _, value = line.partition(" ")
                used -= int(value) if name == cached else 0
            yield max(limit - max(used, 0), 0)


def oom_kills() -> int | None:
    """Return how many processes the kernel has killed since memory ran out.

    They are counted for our own control group, else for this machine; None where nothing counts
    them.
    """
    with contextlib.suppress(OSError):
        folders = cgroup_folders()
        names = ("memory.events", "memory.oom_control")
        files = [folder / name for folder in folders for name in names]
        for path in [*files, Path("/proc/vmstat")]:
            with contextlib.suppress(OSError):
                found = re.search(r"^oom_kill (\d+)$", path.read_text(), re.MULTILINE)
                if found:
                    return int(found[1])
    return None


def positive(path: Path) -> int:
    """Return the number in a file; raises ValueError for words, and for -1, which is no limit."""
    value = int(path.read_text())
    if value <= 0:
        raise ValueError
    return value


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
