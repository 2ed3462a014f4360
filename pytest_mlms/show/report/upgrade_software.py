"""Software of both sides of an upgrade, from the item's line: what differs, and what is alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pytest_mlms.keep.results.item_line import NotedSide
from pytest_mlms.keep.results.line import LaunchRecord
from pytest_mlms.provide.stacks.declared import framework_of
from pytest_mlms.provide.stacks.exact_packages import NONE, Difference
from pytest_mlms.provide.stacks.recreated import changed_packages
from pytest_mlms.show.pages.item import ItemView


@dataclass(frozen=True)
class UpgradeSoftware:
    """The packages that differ between both sides, and the versions that agents told alike.

    ``framework`` is the difference of a distribution of the framework; None where there is none.
    """

    differing: tuple[Difference, ...]
    alike: Mapping[str, str]
    framework: Difference | None


def software_of(item: ItemView) -> UpgradeSoftware:
    """Return the software of an upgrade; what the line doesn't tell is left out."""
    told = _told(item)
    listed = _listed(item)
    known = {difference.package for difference in listed}
    differing = list(listed)
    alike = {}
    for name, (a, b) in told.items():
        if a == b:
            alike[name] = a
        elif name not in known:
            differing.append(Difference(name, a, b))
    differing.sort(key=lambda difference: not _is_framework(difference, item))
    first = differing[0] if differing else None
    framework = first if first is not None and _is_framework(first, item) else None
    return UpgradeSoftware(tuple(differing), alike, framework)


def _is_framework(difference: Difference, item: ItemView) -> bool:
    return framework_of(difference.package) == item.framework


def _told(item: ItemView) -> Mapping[str, tuple[str, str]]:
    """Return the versions that agents told on both sides, by name, and those of Python."""
    a = _versions(item, "a")
    b = _versions(item, "b")
    names = dict.fromkeys((*a, *b))
    return {name: (a.get(name, NONE), b.get(name, NONE)) for name in names}


def _versions(item: ItemView, name: str) -> Mapping[str, str]:
    for measured in item.rounds:
        side = measured.sides.get(name)
        if side is not None:
            return _with_python(side)
    return {}


def _with_python(side: NotedSide) -> Mapping[str, str]:
    return {**side.versions, "Python": side.python} if side.python else side.versions


def _listed(item: ItemView) -> list[Difference]:
    """Return the packages that the lists of both environments differ in."""
    return changed_packages(_packages(item.launch_against), _packages(item.launch))


def _packages(launch: LaunchRecord | None) -> tuple[str, ...]:
    return launch.exact if launch else ()
