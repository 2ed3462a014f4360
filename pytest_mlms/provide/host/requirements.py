"""The requirements of items on the host that runs them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypedDict, cast

import pytest

from pytest_mlms.core.errors import Unavailable
from pytest_mlms.core.serialization import to_plain
from pytest_mlms.provide.cases import Case, case_of
from pytest_mlms.provide.host.capabilities import Capabilities
from pytest_mlms.provide.host.matching import hardware_misses, label_misses
from pytest_mlms.provide.stacks.labels import label_of, visit_of

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
