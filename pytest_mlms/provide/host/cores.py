"""The cores of this host that are near each other."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Collection, Iterable
from pathlib import Path

from pytest_mlms.core.memory import cgroup_folders, cpu_limits

_DEVICES = Path("/sys/devices")


def cores_beside(cores: Collection[int], allowed: Collection[int] = ()) -> dict[int, int]:
    """Return another core for each of these; none where there are too few.

    This process may use them, and they are ``allowed`` if any are. They have the same memory, since
    what a process has taken stays where it is (numa(7)), and are of the same kind. Threads of one
    physical core are again threads of one, as frameworks count these. Others come first. There are
    none where a control group's limit of CPUs would slow both sides down together.
    """
    if not cores or not hasattr(os, "sched_getaffinity") or not _may_use(2 * len(cores)):
        return {}
    near = os.sched_getaffinity(0).intersection(*(_node_of(core) for core in cores))
    if allowed:
        near &= set(allowed)
    taken = set().union(*(_siblings_of(core) for core in cores))
    free = near.difference(cores)
    ordered = sorted(free, key=lambda core: (core in taken, core < min(cores), core))
    free_groups = _by_physical_core(ordered)
    places: dict[int, int] = {}
    for group in sorted(_by_physical_core(sorted(cores)), key=len, reverse=True):
        for other in free_groups:
            if len(other) >= len(group) and _kind_of(other[0]) == _kind_of(group[0]):
                places.update(zip(group, other, strict=False))
                free_groups.remove(other)
                break
        else:
            return {}
    return places


def _may_use(count: int) -> bool:
    """Return whether control groups allow so many CPUs at once."""
    with contextlib.suppress(OSError):  # a system without control groups
        return all(count <= each for folder in cgroup_folders() for each in cpu_limits(folder))
    return True


def _by_physical_core(cores: Iterable[int]) -> list[list[int]]:
    groups: dict[int, list[int]] = {}
    for core in cores:
        groups.setdefault(min(_siblings_of(core)), []).append(core)
    return list(groups.values())


def _siblings_of(core: int) -> set[int]:
    """Return the threads of a core's physical core; only itself where the kernel doesn't tell."""
    return {core} | _listed(f"system/cpu/cpu{core}/topology/thread_siblings_list")


def _node_of(core: int) -> set[int]:
    """Return the cores of a core's memory node; only itself where the kernel doesn't tell.

    A kernel that is built without nodes has all its cores in one.
    """
    of_node = _listed(f"system/cpu/cpu{core}/node*/cpulist")
    return {core} | (of_node or _listed("system/cpu/present"))


def _kind_of(core: int) -> tuple[bool, set[int]]:
    """Return what tells slow cores from fast ones: of Intel, and of ARM."""
    return core in _listed("cpu_atom/cpus"), _listed(f"system/cpu/cpu{core}/cpu_capacity")


def _listed(pattern: str) -> set[int]:
    """Return the numbers that the kernel lists in files; none where there is no file."""
    return {core for path in _DEVICES.glob(pattern) for core in listed_numbers(path.read_text())}


def listed_numbers(text: str) -> list[int]:
    """Return the numbers of a list of the kernel, such as "0-3,8"."""
    found: list[int] = []
    for first, last in re.findall(r"(\d+)(?:-(\d+))?", text):
        found += range(int(first), int(last or first) + 1)
    return found
