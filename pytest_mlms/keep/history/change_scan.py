"""Search of a history for changes: series by series, those with new points only."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, Engine, delete, func, select, update

from pytest_mlms.keep.history import schema
from pytest_mlms.keep.history.adding import Rows, insert_missing
from pytest_mlms.keep.history.blocks import Blocks
from pytest_mlms.keep.history.change_points import TOO_FEW, estimate_shift, find_shifts, sight_of
from pytest_mlms.keep.history.series_points import SeriesPoints, read_series
from pytest_mlms.keep.history.shifts import NAMED, Estimate, Scale, Shift, Sight, scale_of
from pytest_mlms.keep.history.significance import (
    AFTER_VERSION,
    ALARM_RISK,
    accepted_p_value,
    predict,
    tests_at,
)
from pytest_mlms.keep.history.store import transact

_AT_ONCE = 5_000  # rows
_NAMES_AT_ONCE = 500  # parameters of a statement
_CAN_BE_UNDONE = ("open", "confirmed")


@dataclass(frozen=True)
class Scanned:
    """Numbers of a search.

    Attributes:
        series: All series.
        least: The fewest points with which a series of noisy values can change.
        too_few: The series that have fewer.
        searched: Those with points that were not searched before.
        found: New changes.
    """

    series: int
    least: int
    too_few: int
    searched: int
    found: int


@dataclass(frozen=True)
class _Found:
    """Rows of ``change`` of a series to write: new ones, and values of existing ones by their id.

    ``at_versions`` are the new ones that began with other software, each by its point and the
    number of points that told it: their first run, and their risk.
    """

    new: list[dict[str, Any]]
    updated: dict[int, dict[str, Any]]
    at_versions: dict[tuple[int, int], tuple[str, float]]


@dataclass(frozen=True)
class SearchedSeries:
    """A series that is searched. Places are indices of its points."""

    points: SeriesPoints
    scale: Scale

    @cached_property
    def values(self) -> NDArray[np.float64]:
        """The values on the scale of the search."""
        return self.scale.of(self.points.values)

    @cached_property
    def places(self) -> Mapping[str, int]:
        """The places of the runs."""
        return {run: place for place, run in enumerate(self.points.runs)}

    def with_points(self, rows: Sequence[Any]) -> list[Any]:
        """Return the rows of changes of the level whose runs still have points, in order."""
        places = self.places
        of_level = [row for row in rows if row.kind != NAMED]
        kept = [row for row in of_level if row.first_run in places and row.found_run in places]
        return sorted(kept, key=lambda row: places[row.first_run])

    def known(self, rows: Sequence[Any]) -> list[Shift]:
        """Return the shifts that rows of changes are of."""
        return [self.shift_of(row) for row in self.with_points(rows)]

    def shift_of(self, row: Any) -> Shift:
        """Return the shift that a row of ``change`` is of."""
        before, after = self.scale.of(np.array([row.before, row.after])).tolist()
        return Shift(
            first=self.places[row.first_run],
            found=self.places[row.found_run],
            old=before,
            change=after - before,
            kind=row.kind,
            undone=self.places.get(row.undone_run),
            accepted=row.status == "accepted",
        )

    def row_of(self, shift: Shift, estimate: Estimate) -> dict[str, Any]:
        """Return the row of ``change`` for a shift."""
        runs = self.points.runs
        undone_run = None if shift.undone is None else runs[shift.undone]
        old = estimate.old
        low, high = self.scale.ratios(old, old + estimate.low, old + estimate.high)
        return {
            "series": self.points.series,
            "kind": shift.kind,
            "first_run": runs[shift.first],
            "found_run": runs[shift.found],
            "undone_run": undone_run,
            "before": self.scale.value(shift.old),
            "after": self.scale.value(shift.old + shift.change),
            "ratio": self.scale.ratio(old, old + estimate.change),
            "low": low,
            "high": high,
            "status": "open" if undone_run is None else "undone",
        }


def scan(history: Engine) -> Scanned:
    """Find the changes of series with points that were not searched, and write them.

    A change that is there stays the same row, also where its place is estimated again. Any number
    of processes may search at once: the history is not locked meanwhile.
    """
    point, scanned = schema.point.c, schema.scanned.c
    query = select(point.series, func.count(), func.sum(point.number)).group_by(point.series)
    with history.connect() as connection:
        searched = dict(connection.execute(select(scanned.series, scanned.points)).all())
        counts = {}
        new = {}
        for series, count, numbers in connection.execute(query):
            counts[series] = count
            state = f"{count}:{int(numbers)}"  # new points change it
            if searched.get(series) != state:
                new[series] = state
        found = _search_all(connection, new)
    transact(history, lambda writing: _write(writing, found, new))
    return Scanned(
        series=len(counts),
        least=TOO_FEW,
        too_few=sum(count < TOO_FEW for count in counts.values()),
        searched=len(new),
        found=sum(len(of_series.new) for of_series in found),
    )


def sights(history: Engine, wanted: Collection[int]) -> list[Sight]:
    """Return how far series of noisy values can be seen to change, those of these that have points.

    Changes are shares of the value, or of the whole.
    """
    found = []
    with history.connect() as connection:
        for series, rows in read_searched(connection, wanted):
            sensitivity = series.scale.sensitivity
            if sensitivity.exact:
                continue
            sight = sight_of(series.values, sensitivity, series.known(rows))
            share = series.scale.share
            found.append(Sight(sight.points, share(sight.change), share(sight.with_software)))
    return found


def read_searched(
    connection: Connection, wanted: Collection[int]
) -> Iterator[tuple[SearchedSeries, list[Any]]]:
    """Yield series that have points, each with the rows of its changes."""
    query = select(schema.change).order_by(schema.change.c.series, schema.change.c.id)
    changes: dict[int, list[Any]] = {}
    for row in connection.execute(query):
        changes.setdefault(row.series, []).append(row)
    of = schema.series.c
    scales = {}
    for number, quantity, unit in connection.execute(select(of.id, of.quantity, of.unit)):
        scales[number] = scale_of(quantity, unit)
    for points in read_series(connection, wanted):
        yield SearchedSeries(points, scales[points.series]), changes.get(points.series, [])


def _search_all(connection: Connection, wanted: Collection[int]) -> list[_Found]:
    """Search series one by one, those again that others of their night contradict."""
    of = schema.change.c
    counted = select(of.first_run, func.count()).where(of.kind != NAMED).group_by(of.first_run)
    began: dict[str, int] = dict(connection.execute(counted).all())
    refused: dict[int, set[tuple[int, int]]] = defaultdict(set)
    found: dict[int, _Found] = {}
    waiting = wanted
    while waiting:
        for series, rows in read_searched(connection, waiting):
            number = series.points.series
            found[number] = _search(series, rows, refused[number])
        waiting = _refuse(connection, found, began, refused)
    return list(found.values())


def _refuse(
    connection: Connection,
    found: Mapping[int, _Found],
    began: Mapping[str, int],
    refused: dict[int, set[tuple[int, int]]],
) -> set[int]:
    """Add to ``refused`` the steps at versions that chance gives to one of so many series.

    ``began`` are the changes that began with a run and were known before. Returns the series that
    have to be searched again.
    """
    risks: dict[tuple[str, int], list[float]] = defaultdict(list)
    for of_series in found.values():
        for (_, length), (run, risk) in of_series.at_versions.items():
            risks[run, length].append(risk)
    tests = _series_of_runs(connection, {run for run, _ in risks})
    limits = {}
    earlier = Counter(began)
    for run, length in sorted(risks):
        limit = accepted_p_value(risks[run, length], tests[run], ALARM_RISK, earlier[run])
        limits[run, length] = limit
        earlier[run] += sum(risk <= limit for risk in risks[run, length])
    again = set()
    for series, of_series in found.items():
        for window, (run, risk) in of_series.at_versions.items():
            if risk > limits[run, window[1]]:
                refused[series].add(window)
                again.add(series)
    return again


def _series_of_runs(connection: Connection, runs: Collection[str]) -> dict[str, int]:
    """Return how many series have a point of each of these runs."""
    of = schema.point.c
    counted = select(of.run, func.count(of.series.distinct())).group_by(of.run)
    counts: dict[str, int] = {}
    ordered = sorted(runs)
    for begin in range(0, len(ordered), _NAMES_AT_ONCE):
        some = ordered[begin : begin + _NAMES_AT_ONCE]
        counts.update(dict(connection.execute(counted.where(of.run.in_(some))).all()))
    return counts


def _write(connection: Connection, found: Sequence[_Found], searched: Mapping[int, str]) -> None:
    """Write changes, but never over what people or the gate decided meanwhile.

    Then the states in which the series were searched are noted.
    """
    change, scanned = schema.change, schema.scanned
    new = []
    for of_series in found:
        new += of_series.new
        for number, row in of_series.updated.items():
            values = dict(row)
            status = values.pop("status")
            changing = update(change).where(change.c.id == number)
            connection.execute(changing.values(values))
            if status == "undone":
                closing = changing.where(change.c.status.in_(_CAN_BE_UNDONE))
                connection.execute(closing.values(status=status))
    if new:
        rows = [tuple(row.values()) for row in new]
        insert_missing(connection, Rows(change, list(new[0]), rows))

    numbers = list(searched)
    for begin in range(0, len(numbers), _AT_ONCE):
        some = numbers[begin : begin + _AT_ONCE]
        connection.execute(delete(scanned).where(scanned.c.series.in_(some)))
    insert_missing(connection, Rows(scanned, ["series", "points"], list(searched.items())))


def _search(
    series: SearchedSeries, rows: Sequence[Any], refused: Collection[tuple[int, int]]
) -> _Found:
    """Return the changes of a series; ``rows`` are those that were found before."""
    values = series.values
    sensitivity = series.scale.sensitivity
    named = {row.first_run: row.id for row in rows if row.kind == NAMED}
    kept = series.with_points(rows)
    known = series.known(rows)
    judged = known[-1].found + 1 if known else 0
    places = series.points.changed
    shifts = find_shifts(values, sensitivity, known, judged, places, refused)
    levels = [0, *[shift.boundary for shift in shifts]]
    ends = [*[shift.first for shift in shifts[1:]], len(values)]
    found = _Found([], {}, {})
    for index, shift in enumerate(shifts):
        end = ends[index] if shift.undone is None else shift.undone
        estimate = estimate_shift(values, sensitivity, shift, end, levels[index])
        row = series.row_of(shift, estimate)
        if index < len(known):
            if shift != known[index] or kept[index].status == "open":
                found.updated[kept[index].id] = row
            continue
        if row["first_run"] in named:  # the gate has decided on it
            found.updated[named[row["first_run"]]] = row
            continue
        found.new.append(row)
        window = (shift.first, shift.found - shift.first + 1)
        if shift.first in places and window[1] in AFTER_VERSION and window not in refused:
            blocks = Blocks(values, levels[: index + 1])
            prediction = predict(blocks, *window, sensitivity.noise)
            risk = prediction.p_value * tests_at(places, shift.found)
            found.at_versions[window] = (row["first_run"], risk)
    return found
