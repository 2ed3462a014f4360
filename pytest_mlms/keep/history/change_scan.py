"""Search of a history for changes: series by series, those with new points only."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, Engine, delete, func, select, update

from pytest_mlms.keep.history import schema
from pytest_mlms.keep.history.bulk import Rows, insert_missing
from pytest_mlms.keep.history.change_points import TOO_FEW, estimate_shift, find_shifts, sight_of
from pytest_mlms.keep.history.scales import Scale, scale_of
from pytest_mlms.keep.history.series_points import SeriesPoints, read_series
from pytest_mlms.keep.history.shifts import Estimate, Shift, Sight
from pytest_mlms.keep.history.store import transact

_AT_ONCE = 5_000  # rows
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


class _State(NamedTuple):
    """The number of a series' points, and the sum of their lines' numbers: new points change it."""

    points: int
    numbers: int

    def __str__(self) -> str:
        return f"{self.points}:{self.numbers}"


@dataclass(frozen=True)
class _Found:
    """Rows of ``change`` to write: new ones, and values of existing ones by their id."""

    new: list[dict[str, Any]]
    updated: dict[int, dict[str, Any]]


@dataclass(frozen=True)
class _Series:
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
        """Return the rows of changes whose runs still have points, in order."""
        places = self.places
        kept = [row for row in rows if row.first_run in places and row.found_run in places]
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
        return {
            "series": self.points.series,
            "kind": shift.kind,
            "first_run": runs[shift.first],
            "found_run": runs[shift.found],
            "undone_run": undone_run,
            "before": self.scale.value(shift.old),
            "after": self.scale.value(shift.old + shift.change),
            "ratio": self._ratio(estimate, estimate.change),
            "low": self._ratio(estimate, estimate.low),
            "high": self._ratio(estimate, estimate.high),
            "status": "open" if undone_run is None else "undone",
        }

    def _ratio(self, estimate: Estimate, change: float) -> float:
        new = estimate.old + change
        return self.scale.ratio(estimate.old, new)


def scan(history: Engine) -> Scanned:
    """Find the changes of series with points that were not searched, and write them.

    A change that is there stays the same row, also where its place is estimated again. Any number
    of processes may search at once: the history is not locked meanwhile.
    """
    with history.connect() as connection:
        states = _states(connection)
        new = _not_searched(connection, states)
        found = _search_all(connection, new)
    transact(history, lambda writing: _write(writing, found, new))
    too_few = [state for state in states.values() if state.points < TOO_FEW]
    return Scanned(
        series=len(states),
        least=TOO_FEW,
        too_few=len(too_few),
        searched=len(new),
        found=len(found.new),
    )


def sights(history: Engine, wanted: Collection[int]) -> list[Sight]:
    """Return how far series of noisy values can be seen to change, those of these that have points.

    Changes are shares of the value, or of the whole.
    """
    found = []
    with history.connect() as connection:
        known = _known_rows(connection)
        scales = _scales(connection)
        for points in read_series(connection, wanted):
            series = _Series(points, scales[points.series])
            sensitivity = series.scale.sensitivity
            if sensitivity.exact:
                continue
            shifts = series.known(known.get(points.series, []))
            sight = sight_of(series.values, sensitivity, shifts)
            share = series.scale.share
            found.append(Sight(sight.points, share(sight.change), share(sight.with_software)))
    return found


def _states(connection: Connection) -> dict[int, _State]:
    """Return the state of each series."""
    of = schema.point.c
    query = select(of.series, func.count(), func.sum(of.number)).group_by(of.series)
    states = {}
    for series, count, total in connection.execute(query):
        states[series] = _State(count, int(total))
    return states


def _not_searched(connection: Connection, states: Mapping[int, _State]) -> dict[int, str]:
    """Return the states, as text, of the series that were not searched in them."""
    of = schema.scanned.c
    searched = dict(connection.execute(select(of.series, of.points)).all())
    new = {}
    for series, state in sorted(states.items()):
        text = str(state)
        if searched.get(series) != text:
            new[series] = text
    return new


def _search_all(connection: Connection, wanted: Collection[int]) -> _Found:
    """Search series one by one; return the changes of all."""
    known = _known_rows(connection)
    scales = _scales(connection)
    found = _Found([], {})
    for points in read_series(connection, wanted):
        series = _Series(points, scales[points.series])
        rows = known.get(points.series, [])
        _search(series, rows, found)
    return found


def _scales(connection: Connection) -> dict[int, Scale]:
    of = schema.series.c
    rows = connection.execute(select(of.id, of.quantity, of.unit))
    return {series: scale_of(quantity, unit) for series, quantity, unit in rows}


def _write(connection: Connection, found: _Found, searched: Mapping[int, str]) -> None:
    """Write changes, but never over what people or the gate decided meanwhile."""
    for number, row in found.updated.items():
        _update(connection, number, row)
    if found.new:
        columns = list(found.new[0])
        rows = [tuple(row.values()) for row in found.new]
        insert_missing(connection, Rows(schema.change, columns, rows))
    _note_searched(connection, searched)


def _update(connection: Connection, number: int, row: Mapping[str, Any]) -> None:
    of = schema.change.c
    values = dict(row)
    status = values.pop("status")
    changing = update(schema.change).where(of.id == number)
    connection.execute(changing.values(values))
    if status == "undone":
        closing = changing.where(of.status.in_(_CAN_BE_UNDONE))
        connection.execute(closing.values(status=status))


def _note_searched(connection: Connection, searched: Mapping[int, str]) -> None:
    """Replace the states in which series were searched."""
    of = schema.scanned.c
    numbers = list(searched)
    for begin in range(0, len(numbers), _AT_ONCE):
        some = numbers[begin : begin + _AT_ONCE]
        connection.execute(delete(schema.scanned).where(of.series.in_(some)))
    states = list(searched.items())
    insert_missing(connection, Rows(schema.scanned, ["series", "points"], states))


def _known_rows(connection: Connection) -> dict[int, list[Any]]:
    query = select(schema.change).order_by(schema.change.c.series, schema.change.c.id)
    rows: dict[int, list[Any]] = {}
    for row in connection.execute(query):
        rows.setdefault(row.series, []).append(row)
    return rows


def _search(series: _Series, rows: Sequence[Any], found: _Found) -> None:
    """Add the changes of a series; ``rows`` are those that were found before."""
    values = series.values
    sensitivity = series.scale.sensitivity
    kept = series.with_points(rows)
    known = series.known(rows)
    judged = known[-1].found + 1 if known else 0
    shifts = find_shifts(values, sensitivity, known, judged, series.points.changed)
    levels = [0, *[shift.boundary for shift in shifts]]
    ends = [*[shift.first for shift in shifts[1:]], len(values)]
    for index, shift in enumerate(shifts):
        end = ends[index] if shift.undone is None else shift.undone
        estimate = estimate_shift(values, sensitivity, shift, end, levels[index])
        row = series.row_of(shift, estimate)
        if index >= len(known):
            found.new.append(row)
        elif shift != known[index] or kept[index].status == "open":
            number = kept[index].id
            found.updated[number] = row
