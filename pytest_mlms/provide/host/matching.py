"""Matching of items and hosts: the unmet needs of an item on a host, and the nearest host.

Pure functions of what an item needs (``Needs``) and what a host offers
(``capabilities.Capabilities``). A match is an empty list.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from pytest_mlms.core.records import device_name
from pytest_mlms.core.units import format_quantity

if TYPE_CHECKING:
    from pytest_mlms.provide.host.capabilities import Capabilities, HostDevice
    from pytest_mlms.provide.host.requirements import Needs

_COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
    "==": operator.eq,
}


class _Miss(NamedTuple):
    """A host with an item's unmet needs there; the fewest sort first."""

    number: int
    host: str
    reasons: list[str]


def misses(needs: Needs, host: Capabilities) -> list[str]:
    """Return an item's unmet needs on a host, in words; none where it can run the item."""
    found = hardware_misses(needs["hardware"], needs["device"], host)
    if needs["here"]:
        found += _framework_misses(needs, host)
    found += label_misses(needs["labels"], host)
    return found


def hardware_misses(asked: Mapping[str, str], device: str, host: Capabilities) -> list[str]:
    """Return the unmet needs of a device, and of a manifest's ``hardware``, on a host."""
    found = _find_device(device, host)
    if found is None:
        return [f"has no device {device}"]
    reasons = []
    if "gpu" in asked:
        reasons += _gpu_misses(asked["gpu"], found)
    if "architecture" in asked:
        reasons += _architecture_misses(asked["architecture"], host)
    if "memory" in asked:
        reasons += _memory_misses(asked["memory"], found)
    if "cores" in asked:
        reasons += _core_misses(asked["cores"], host)
    return reasons


def label_misses(asked: Mapping[str, str], host: Capabilities) -> list[str]:
    """Return the labels that a host doesn't carry."""
    found = []
    for name, value in asked.items():
        if host["labels"].get(name) != value:
            found.append(f"isn't labelled {name}={value}")
    return found


def nearest_miss(needs: Needs, hosts: Iterable[Capabilities]) -> str:
    """Return a sentence about the host that is missing least for an item."""
    found = []
    for host in hosts:
        reasons = misses(needs, host)
        found.append(_Miss(len(reasons), host["host"], reasons))
    if not found:
        return "no host is left"
    count = len({miss.host for miss in found})
    nearest = min(found)
    text = ", ".join(nearest.reasons)
    return f"no host of {count} can run this; nearest is {nearest.host}, which {text}"


def locks_of(needs: Needs, host: Capabilities) -> frozenset[str]:
    """Return the locks that an item holds while it runs on a host.

    An item that measures holds its device alone; of the CPU it holds the cores of its stack, all
    if the stack names none.
    """
    device = _find_device(needs["device"], host)
    if device is None or not needs["exclusive"]:
        return frozenset()
    cores = needs["stack"]["cores"]
    if device["name"] != "cpu" or not cores:
        return frozenset(device["locks"])
    held = set()
    for lock in device["locks"]:
        _, _, core = lock.rpartition(" core-")
        if core in map(str, cores):
            held.add(lock)
    return frozenset(held)


def _find_device(name: str, host: Capabilities) -> HostDevice | None:
    wanted = device_name(name)
    for device in host["devices"]:
        if device["name"] == wanted:
            return device
    return None


def _framework_misses(needs: Needs, host: Capabilities) -> list[str]:
    """Return the unmet needs of the worker's own interpreter, to which no stack adds."""
    name = needs["framework"]
    if name not in host["frameworks"]:
        return [f"has no {name}"]
    if needs.get("any_version"):
        return []
    version = host["frameworks"][name]
    written = needs["model"]["framework"]  # such as onnxruntime >=1.17
    asked = written.removeprefix(name).strip()
    if _is_version_met(asked, version):
        return []
    return [f"has {name} {version}, not {asked}"]


def _is_version_met(asked: str, version: str) -> bool:
    """Return whether a version meets a specifier.

    One that is unknown or can't be compared counts as met: the agent checks it again.
    """
    if not version:
        return True
    try:
        specifiers = SpecifierSet(asked)
        found = Version(version)
    except (InvalidSpecifier, InvalidVersion):
        return True
    return specifiers.contains(found, prereleases=True)


def _gpu_misses(asked: str, device: HostDevice) -> list[str]:
    if device["name"] == "cpu":
        return []
    kind = device["kind"]
    if asked.casefold() in kind.casefold():
        return []
    return [f"has a {kind}, not a {asked}"]


def _architecture_misses(asked: str, host: Capabilities) -> list[str]:
    found = host["architecture"]
    if asked == found:
        return []
    return [f"is {found}, not {asked}"]


def _memory_misses(asked: str, device: HostDevice) -> list[str]:
    if _is_met(asked, device["memory"]):
        return []
    found = format_quantity(device["memory"], "B")
    name = device["name"]
    return [f"has {found} on {name}, not {asked}"]


def _core_misses(asked: str, host: Capabilities) -> list[str]:
    found = host["cores"]
    if _is_met(asked, found):
        return []
    return [f"has {found} cores, not {asked}"]


def are_constraints(asked: Mapping[str, str]) -> bool:
    """Return whether a host can be held against the ``hardware`` that another process asks for."""
    from pytest_mlms.manifest.types import split_constraint

    try:
        return all(split_constraint(asked[name]) for name in ("memory", "cores") if name in asked)
    except ValueError:
        return False


def _is_met(constraint: str, found: float) -> bool:
    """Return whether a number meets a constraint such as ">= 32 GiB", which is known to be one."""
    from pytest_mlms.manifest.types import split_constraint

    comparison, value = split_constraint(constraint)
    compare = _COMPARISONS[comparison]
    return compare(found, value)
