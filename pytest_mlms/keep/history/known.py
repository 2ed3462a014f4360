"""A history's knowledge of performance cases on this class of machines, before they're measured."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from statistics import fmean
from typing import Any

from sqlalchemy import Connection

from pytest_mlms.core.serialization import to_plain
from pytest_mlms.decide.advice.known import Known
from pytest_mlms.keep.history.queries import points, series_ids
from pytest_mlms.keep.history.series import Common, parts_of
from pytest_mlms.keep.results.item_result import identity_of
from pytest_mlms.provide.cases import Case

_LAST = 5
"""Runs that are looked at: older ones say little of today's software."""


def known_of(
    connection: Connection, case: Case, machine: Mapping[str, Any], quantities: Iterable[str]
) -> dict[str, Known]:
    """Return what the last runs of a case on a machine of this state's class measured.

    The model, dataset, settings and device are the same; versions of software may differ.
    """
    common = Common(parts_of_case(case, machine))
    keys = {common.key(quantity): quantity for quantity in quantities}
    return dict(_known(connection, keys))


def parts_of_case(case: Case, machine: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parts that the series of a case have on a machine, but for the quantity."""
    line = to_plain(identity_of(case), whole=True)
    nodeid = f"{case.loaded.path.name}::test_{case.kind}[{case.id}]"
    return parts_of({**line, "machine": to_plain(machine), "nodeid": nodeid})


def _known(connection: Connection, keys: Mapping[str, str]) -> Iterator[tuple[str, Known]]:
    for key, number in series_ids(connection, keys).items():
        found = points(connection, number, _LAST, usable=True)
        if found:
            values = [point.value for point in found]
            lows = [point.value if point.low is None else point.low for point in found]
            highs = [point.value if point.high is None else point.high for point in found]
            last = found[-1].started
            yield keys[key], Known(fmean(values), min(lows), max(highs), len(found), last)
