"""What an item needs of the host that runs it, as plain values that travel."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

import pytest

from pytest_mlms.cases import Case
from pytest_mlms.errors import Unavailable
from pytest_mlms.host.capabilities import gather
from pytest_mlms.host.matching import hardware_misses, label_misses
from pytest_mlms.item_result import CaseIdentity
from pytest_mlms.serialization import to_plain
from pytest_mlms.stacks.labels import label_of, visit_of

__all__ = ["OF_HOSTS", "Needs", "case_of", "check_hardware", "needs_of", "table_of"]

Needs = Mapping[str, Any]

OF_HOSTS = ("exclusive", "here", "hardware", "labels", "visit")
"""What of the needs is for choosing a host; the rest describes the case."""


def case_of(item: pytest.Item) -> Case | None:
    """Return the case that an item evaluates, None for a test that is none of ours."""
    callspec = getattr(item, "callspec", None)
    return cast("Case | None", callspec.params.get("mlms_case")) if callspec else None


def check_hardware(case: Case, config: pytest.Config) -> None:
    """Raise Unavailable where this host isn't what the manifest's hardware, or the label of the
    case, asks for.
    """
    asked, labels = case.loaded.manifest.hardware, _labels(case)
    if asked is None and not labels:
        return
    host = gather(config)
    lacking = label_misses(labels, host)
    if asked is not None:
        lacking += hardware_misses(asked.model_dump(exclude_none=True), case.device, host)
    if lacking:
        raise Unavailable(f"{case.loaded.place('hardware')}: {host['host']} {', '.join(lacking)}")


def needs_of(item: pytest.Item) -> dict[str, Any] | None:
    """Return the facts of an item's case, and what it asks of a host; None for a test that is none
    of ours.

    ``device`` is held by the item alone where ``exclusive``. ``here`` says that the framework must
    be in the interpreter that runs the worker, as no stack brings it.
    """
    case = case_of(item)
    if case is None:
        return None
    hardware = case.loaded.manifest.hardware
    return {
        **to_plain(CaseIdentity.of(case)),
        "exclusive": "mlms_device" in getattr(item, "fixturenames", ()),
        "here": case.stack.interpreter == "current",
        "hardware": hardware.model_dump(exclude_none=True) if hardware else {},
        "labels": _labels(case),
        "visit": visit_of(case.stack.name),
    }


def _labels(case: Case) -> dict[str, str]:
    label = label_of(case.stack.name)
    return dict([label]) if label else {}


def table_of(items: Iterable[pytest.Item]) -> tuple[list[dict[str, Any]], list[int]]:
    """Return the different needs of ``items``, and for each item its place among them, -1 for what
    isn't ours.
    """
    table: list[dict[str, Any]] = []
    places: dict[tuple[int, bool], int] = {}
    indices = []
    for item in items:
        case = case_of(item)
        if case is None:
            indices.append(-1)
            continue
        key = id(case), "mlms_device" in getattr(item, "fixturenames", ())
        if key not in places:
            needs = needs_of(item)
            assert needs is not None
            places[key] = len(table)
            table.append(needs)
        indices.append(places[key])
    return table, indices
