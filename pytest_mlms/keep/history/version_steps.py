"""Series whose newest runs have other software than those before: what can be said of them yet."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import Connection, Engine

from pytest_mlms.keep.history.blocks import Blocks
from pytest_mlms.keep.history.change_groups import Difference, differences_between
from pytest_mlms.keep.history.change_scan import SearchedSeries, read_searched
from pytest_mlms.keep.history.changes import Change
from pytest_mlms.keep.history.queries import PointRow, SeriesInfo, points, series_by_id
from pytest_mlms.keep.history.shifts import NAMED
from pytest_mlms.keep.history.significance import (
    AFTER_VERSION,
    LEAST_NAMED,
    NAMED_RISK,
    Prediction,
    accepted_p_value,
    predict,
)

_INTERVAL_RISK = 0.05


@dataclass(frozen=True)
class VersionChange:
    """Other software in the newest runs of series, on one class of machines.

    Attributes:
        machine: The class.
        first_run: The first run with it.
        runs: How many runs there are since.
        differences: What differs from the run before.
        series: The series that have it.
        too_few: Those of them with too few runs before it to tell anything.
        found: Those of them with a change there that the history has.
        suspected: Changes that are too small for so few runs to show, the largest first, as they
            would be in the history; their id is 0.
        least: The smallest and the largest share by which a series, were it the only one, has to
            change to be suspected four times of five. None where all have too few runs.
    """

    machine: str
    first_run: str
    runs: int
    differences: Sequence[Difference]
    series: int
    too_few: int
    found: int
    suspected: Sequence[Change]
    least: tuple[float, float] | None


class _Tested(NamedTuple):
    """A series with other software since the point ``place``.

    ``is_found`` says that the history has a change there. There is no prediction then, and none
    from too few points before it. ``tests`` are the changes of software that may be suspected.
    """

    series: SearchedSeries
    info: SeriesInfo
    before: PointRow
    after: PointRow
    place: int
    is_found: bool
    prediction: Prediction | None
    tests: int

    @property
    def p_value(self) -> float:
        """The p-value of the prediction, of all the changes that might have been chosen."""
        return self.prediction.p_value * self.tests if self.prediction else 1.0

    @property
    def change(self) -> tuple[str, ...]:
        """A change of software, as the series have it in common that changed in the same way."""
        stacks = (self.before.stack or "", self.after.stack or "")
        return (self.after.run, self.info.machine, *stacks)


def version_changes(history: Engine, wanted: Collection[int]) -> list[VersionChange]:
    """Return the changes of software in the newest runs of these series, the oldest first.

    Computed values, such as accuracies, are left out: one of them is enough for the search.
    """
    tested = []
    with history.connect() as connection:
        infos = {info.id: info for info in series_by_id(connection, wanted)}
        for series, rows in read_searched(connection, wanted):
            found = _test(connection, series, rows, infos[series.points.series])
            if found is not None:
                tested.append(found)
        changes = []
        ordered = sorted(tested, key=lambda each: each.change)
        for _, group in itertools.groupby(ordered, lambda each: each.change):
            of_change = list(group)
            machine = of_change[0].info.machine
            night = [each for each in tested if each.info.machine == machine]
            changes.append(_version_change(connection, of_change, night))
    return changes


def _test(
    connection: Connection, series: SearchedSeries, rows: Sequence[Any], info: SeriesInfo
) -> _Tested | None:
    """Return the most telling test of a series' newest points; None without new software."""
    if series.scale.sensitivity.exact:
        return None
    count = len(series.points.runs)
    changed = series.points.changed
    places = changed[count - changed <= AFTER_VERSION[-1]]
    if not len(places):
        return None
    starts = [0, *[shift.boundary for shift in series.known(rows)]]
    newest = points(connection, info.id, last=count - int(places[0]) + 1, usable=True)
    found = []
    for place in places.tolist():
        run = series.points.runs[place]
        is_found = starts[-1] >= place or any(row.first_run == run for row in rows)
        prediction = None
        if not is_found:
            blocks = Blocks(series.values, starts)
            if blocks.counts[place] >= LEAST_NAMED:
                noise = series.scale.sensitivity.noise
                prediction = predict(blocks, place, count - place, noise)
        before, after = newest[place - count - 1], newest[place - count]
        tested = _Tested(series, info, before, after, place, is_found, prediction, len(places))
        found.append(tested)
    return min(reversed(found), key=lambda tested: (tested.p_value, not tested.is_found))


def _version_change(
    connection: Connection, group: Sequence[_Tested], night: Sequence[_Tested]
) -> VersionChange:
    """Return the change of software that series have in common, and which of them it changed.

    ``night`` are all series that are tested on the class of machines: those of other stacks, and
    of other changes of software, have their share of the risk.
    """
    predictions = [(tested, tested.prediction) for tested in group if tested.prediction]
    risks = [tested.p_value for tested in night if tested.prediction]
    found_of_night = sum(tested.is_found for tested in night)
    tests = len(risks) + found_of_night
    limit = accepted_p_value(risks, tests, NAMED_RISK, found_of_night)
    suspected = []
    seen = []
    for tested, prediction in predictions:
        scale = tested.series.scale
        least = scale.sensitivity.min_magnitude
        risk = NAMED_RISK * (found_of_night + 1) / tests / tested.tests
        seen.append(scale.share(prediction.seen(risk, least)))
        if abs(prediction.change) > least and tested.p_value <= limit:
            suspected.append(_suspicion(tested, prediction))
    first = group[0]
    found = sum(tested.is_found for tested in group)
    return VersionChange(
        machine=first.info.machine,
        first_run=first.after.run,
        runs=len(first.series.points.runs) - first.place,
        differences=differences_between(connection, first.before, first.after),
        series=len(group),
        too_few=len(group) - len(predictions) - found,
        found=found,
        suspected=sorted(suspected, key=lambda change: -abs(math.log(change.ratio))),
        least=(min(seen), max(seen)) if seen else None,
    )


def _suspicion(tested: _Tested, prediction: Prediction) -> Change:
    """Return a change as the history would have it, with the interval of its prediction."""
    series, info = tested.series, tested.info
    scale = series.scale
    new = float(series.values[tested.place :].mean())
    old = new - prediction.change
    half = prediction.half(_INTERVAL_RISK)
    low, high = scale.ratios(old, new - half, new + half)
    is_higher = prediction.change > 0
    return Change(
        id=0,
        series=info.id,
        parts=info.parts,
        quantity=info.quantity,
        unit=info.unit,
        better=info.better,
        control=info.control,
        kind=NAMED,
        first_run=tested.after.run,
        started=tested.after.started,
        found_run=series.points.runs[-1],
        undone_run=None,
        before=scale.value(old),
        after=scale.value(new),
        ratio=scale.ratio(old, new),
        low=low,
        high=high,
        cause=None,
        status="open",
        confirmed_by=None,
        reason=None,
        decided=None,
        decided_by=None,
        is_worse=is_higher == (info.better == "lower"),
    )
