"""Both sides of a change: the last run before it and its first run, with their items."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, select

from pytest_mlms.keep.history.changes import Change
from pytest_mlms.keep.history.errors import HistoryError
from pytest_mlms.keep.history.queries import PointRow, points
from pytest_mlms.keep.history.run_lines import check_line
from pytest_mlms.keep.history.schema import line, run
from pytest_mlms.provide.stacks.exact import RecordedStack

_REACH = 3
"""Runs before and after the one where a change was located: it may be a few runs off."""


@dataclass(frozen=True)
class Side:
    """A run on one side of a change: its item's line, and the version of this plugin."""

    run: str
    plugin: str | None
    line: Mapping[str, Any]
    stack: RecordedStack

    @property
    def tells_all(self) -> bool:
        """True if its line has all that may change a value: those of older versions don't."""
        return bool(self.line.get("definition")) and self.stack.inherited is not None


def sides_of(connection: Connection, change: Change) -> tuple[Side, Side] | None:
    """Return the last run before a change and its first run; None where a point is gone.

    The change of software that is nearest to where the change was located separates them; without
    one, the two runs are those beside that place.
    """
    found = points(connection, change.series, usable=True)
    runs = [row.run for row in found]
    if change.first_run not in runs[1:]:
        return None
    located = runs.index(change.first_run)
    begin = max(0, located - _REACH)
    sides = {}
    near = found[begin : located + _REACH]
    for index, of_point in enumerate(near, start=begin):
        sides[index] = _side(connection, of_point)
    boundary = _nearest_boundary(sides, located)
    return sides[boundary - 1], sides[boundary]


def _nearest_boundary(sides: Mapping[int, Side], located: int) -> int:
    """Return the index of the first side with other software than the one before."""
    boundaries = []
    for index, side in sides.items():
        before = sides.get(index - 1)
        if before is not None and before.stack.identity != side.stack.identity:
            boundaries.append(index)
    return min(boundaries, key=lambda index: abs(index - located), default=located)


def _side(connection: Connection, of_point: PointRow) -> Side:
    query = (
        select(line.c.json, run.c.plugin)
        .join(run, run.c.id == line.c.run)
        .where(line.c.run == of_point.run, line.c.number == of_point.number)
    )
    row = connection.execute(query).one()
    try:
        item = check_line(of_point.number, row.json.encode()).fields
    except HistoryError as error:
        where = f"line {of_point.number + 1} of run {of_point.run} in the history"
        raise HistoryError(f"{where}: {error}") from None
    return Side(of_point.run, row.plugin, item, RecordedStack.of(item))
