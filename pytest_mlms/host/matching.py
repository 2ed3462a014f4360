"""Whether a host can run an item; if none can, which comes nearest and what it lacks.

Pure functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion

from pytest_mlms.records import device_name
from pytest_mlms.units import format_quantity

__all__ = ["hardware_misses", "label_misses", "locks_of", "misses", "nearest_miss"]

_COMPARE: dict[str, Callable[[float, float], bool]] = {
    ">=": lambda found, asked: found >= asked,
    "<=": lambda found, asked: found <= asked,
    ">": lambda found, asked: found > asked,
    "<": lambda found, asked: found < asked,
    "==": lambda found, asked: found == asked,
}


def misses(needs: Mapping[str, Any], host: Mapping[str, Any]) -> list[str]:
    """Return what ``host`` (see capabilities.gather) lacks for an item with ``needs``, nothing
    where it fits.
    """
    elsewhere = [*_framework(needs, host), *label_misses(needs.get("labels") or {}, host)]
    return [*hardware_misses(needs["hardware"], needs["device"], host), *elsewhere]


def hardware_misses(asked: Mapping[str, str], device: str, host: Mapping[str, Any]) -> list[str]:
    """Return what ``host`` lacks of a device and a manifest's hardware."""
    found = _device(device, host)
    return [f"has no device {device}"] if found is None else list(_hardware(asked, found, host))


def nearest_miss(needs: Mapping[str, Any], hosts: Iterable[Mapping[str, Any]]) -> str:
    """Say of the host that lacks least what it lacks."""
    ranked = sorted(
        ((misses(needs, host), host["host"]) for host in hosts),
        key=lambda pair: (len(pair[0]), pair[1]),
    )
    if not ranked:
        return "no host is left"
    lacking, name = ranked[0]
    return f"no host of {len({host for _, host in ranked})} can run this; nearest is {name}, which {', '.join(lacking)}"


def locks_of(needs: Mapping[str, Any], host: Mapping[str, Any]) -> frozenset[str]:
    """Return what an item holds alone while it runs on ``host``."""
    device = _device(needs["device"], host)
    if device is None or not needs["exclusive"]:
        return frozenset()
    cores = (
        {f"core-{core}" for core in needs["stack"]["cores"]} if device["name"] == "cpu" else set()
    )
    return frozenset(
        lock for lock in device["locks"] if not cores or lock.rpartition(" ")[2] in cores
    )


def _device(name: str, host: Mapping[str, Any]) -> Mapping[str, Any] | None:
    return next((device for device in host["devices"] if device["name"] == device_name(name)), None)


def _framework(needs: Mapping[str, Any], host: Mapping[str, Any]) -> list[str]:
    if not needs["here"]:
        return []
    name = needs["framework"]
    if name not in host["frameworks"]:
        return [f"has no {name}"]
    version, asked = (
        host["frameworks"][name],
        needs["model"]["framework"].removeprefix(name).strip(),
    )
    try:
        fits = not version or SpecifierSet(asked).contains(version, prereleases=True)
    except (InvalidSpecifier, InvalidVersion):
        fits = True  # the agent says what it has
    return [] if fits else [f"has {name} {version}, not {asked}"]


def label_misses(asked: Mapping[str, str], host: Mapping[str, Any]) -> list[str]:
    """Return which of the labels ``host`` doesn't carry."""
    return [
        f"isn't labelled {name}={value}"
        for name, value in asked.items()
        if host["labels"].get(name) != value
    ]


def _hardware(
    asked: Mapping[str, str], device: Mapping[str, Any], host: Mapping[str, Any]
) -> list[str]:
    lacking = []
    gpu, architecture = asked.get("gpu"), asked.get("architecture")
    if gpu and device["name"] != "cpu" and gpu.casefold() not in device["kind"].casefold():
        lacking.append(f"has a {device['kind']}, not a {gpu}")
    if architecture and architecture != host["architecture"]:
        lacking.append(f"is {host['architecture']}, not {architecture}")
    if not _meets(asked.get("memory"), device["memory"]):
        lacking.append(
            f"has {format_quantity(device['memory'], 'B')} on {device['name']}, not {asked['memory']}"
        )
    if not _meets(asked.get("cores"), host["cores"]):
        lacking.append(f"has {host['cores']} cores, not {asked['cores']}")
    return lacking


def _meets(constraint: str | None, found: float) -> bool:
    """Whether ``found`` meets a constraint as the manifest's form has checked it.

    ">= 32 GiB" or ">= 8".
    """
    if constraint is None:
        return True
    from pytest_mlms.manifest.types import split_constraint

    operator, value = split_constraint(constraint)
    return _COMPARE[operator](found, value)
