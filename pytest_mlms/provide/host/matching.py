"""Matching of items and hosts: what an item needs, what of it a host lacks, the nearest host.

Most are pure functions of what an item needs (``Needs``) and what a host offers
(``capabilities.Capabilities``). A match is an empty list."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict, cast

import pytest
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from pytest_mlms.core.errors import Unavailable
from pytest_mlms.core.records import device_name
from pytest_mlms.core.serialization import to_plain
from pytest_mlms.core.units import format_quantity
from pytest_mlms.provide.cases import Case, case_of
from pytest_mlms.provide.host.capabilities import Capabilities
from pytest_mlms.provide.stacks.labels import label_of, visit_of

if TYPE_CHECKING:
    from pytest_mlms.provide.host.capabilities import HostDevice


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


OF_HOSTS = ("exclusive", "here", "any_version", "hardware", "labels", "visit", "outputs")
"""The keys of Needs that are only for the choice of a host; the others identify the case."""


class ManifestNeeds(TypedDict):
    """The name of a manifest."""

    name: str


class ModelNeeds(TypedDict):
    """The framework of a model, with the versions that the manifest asks for."""

    framework: str


class StackNeeds(TypedDict):
    """The cores that a stack is held to, none where it may use all."""

    cores: Sequence[int]


class Needs(TypedDict):
    """Needs of an item: plain values, as workers send them to the controller.

    The item holds ``device`` alone where ``exclusive``. ``here`` says that the framework must be in
    the worker's own interpreter, as no stack brings it, and ``any_version`` that each version of it
    will do. ``hardware`` and ``labels`` are those that
    the manifest and the stack ask for; ``visit`` is the number of a measurement between hosts, else
    0. ``outputs`` is a text that only items have in common which need the same outputs, "" for
    other items. The mapping also has the other fields of the case's identity.
    """

    case: str
    manifest: ManifestNeeds
    framework: str
    device: str
    model: ModelNeeds
    stack: StackNeeds
    exclusive: bool
    here: bool
    any_version: bool
    hardware: Mapping[str, str]
    labels: Mapping[str, str]
    visit: int
    outputs: str


class NeedsTable(NamedTuple):
    """The different needs of items, and for each item its row, -1 for items of other plugins."""

    needs: list[Needs]
    rows: list[int]


class _Uses(NamedTuple):
    """The fixtures of an item that decide where it runs.

    An item that uses the device measures, and holds it alone. Items that use the outputs of one
    stack follow each other in one worker.
    """

    device: bool
    outputs: bool

    @classmethod
    def of(cls, item: pytest.Item) -> _Uses:
        """Return the uses of an item."""
        names = getattr(item, "fixturenames", ())
        return cls("mlms_device" in names, "mlms_outputs" in names)


def check_hardware(case: Case, capabilities: Callable[[], Capabilities]) -> None:
    """Raise Unavailable where this host isn't what the manifest or the case's label asks for.

    ``capabilities`` tells what this host offers, and is called only where something is asked for.
    """
    hardware = case.loaded.manifest.hardware
    labels = _labels_of(case)
    if hardware is None and not labels:
        return
    host = capabilities()
    found = label_misses(labels, host)
    if hardware is not None:
        found += hardware_misses(_hardware_of(case), case.device, host)
    if found:
        place = case.loaded.place("hardware")
        raise Unavailable(f"{place}: {host['host']} {', '.join(found)}")


def table_of(items: Iterable[pytest.Item], identity_of: Callable[[Case], object]) -> NeedsTable:
    """Return the needs of items, each different one once: items of one case share theirs.

    ``identity_of`` returns a record of what identifies a case, whose fields the needs have too.
    """
    table = NeedsTable([], [])
    known: dict[tuple[int, _Uses], int] = {}
    for item in items:
        case = case_of(item)
        if case is None:
            table.rows.append(-1)
            continue
        uses = _Uses.of(item)
        key = (id(case), uses)
        if key not in known:
            known[key] = len(table.needs)
            table.needs.append(_needs(case, uses, identity_of(case)))
        table.rows.append(known[key])
    return table


def _needs(case: Case, uses: _Uses, identity: object) -> Needs:
    needs: dict[str, Any] = to_plain(identity)
    needs["exclusive"] = uses.device
    needs["here"] = case.stack.interpreter == "current"
    needs["any_version"] = case.model.or_nearest
    needs["hardware"] = _hardware_of(case)
    needs["labels"] = _labels_of(case)
    needs["visit"] = visit_of(case.stack.name)
    needs["outputs"] = ""
    if uses.outputs and case.loaded.manifest.dataset is not None:
        parts = (case.loaded.path, case.model.name, case.stack.name, case.device, case.batch_size)
        needs["outputs"] = " ".join(map(str, parts))
    return cast("Needs", needs)


def _hardware_of(case: Case) -> dict[str, str]:
    hardware = case.loaded.manifest.hardware
    if hardware is None:
        return {}
    return hardware.model_dump(exclude_none=True)


def _labels_of(case: Case) -> dict[str, str]:
    label = label_of(case.stack.name)
    if label is None:
        return {}
    return {label.name: label.value}
