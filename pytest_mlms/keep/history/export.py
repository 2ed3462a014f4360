"""Exports of a history: its runs' lines as they are, and its changes.

A line of JSON begins each run and tells the number of its lines, which follow as in results.jsonl.
The changes come last, a line each. Ids of series and of changes differ between histories, so a
change names its series by a point: the line of its first run, and the quantity. Thus its series is
found also where another version makes other keys.
"""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, insert, select, text, update

from pytest_mlms.core.files import open_regular
from pytest_mlms.keep.history import schema
from pytest_mlms.keep.history.errors import HistoryDamaged, HistoryError

VERSION = 1
_MARK = "mlms_history"
_RUNS = "SELECT id FROM run ORDER BY started, id"
_LINES = "SELECT json FROM line WHERE run = :run ORDER BY number"

_CHANGES = """
SELECT change.*, series.quantity AS series_quantity, series.key AS series_key,
       (SELECT min(point.number) FROM point
        WHERE point.series = change.series AND point.run = change.first_run) AS line
FROM change JOIN series ON series.id = change.series ORDER BY change.id
"""
_LOCAL = ("id", "series", "series_quantity", "series_key", "line")


@dataclass(frozen=True)
class StoredRun:
    """The lines of a run of a history or an export; ``where`` names them in errors."""

    where: str
    lines: list[bytes]


def export_lines(connection: Connection) -> Iterator[str]:
    """Yield the lines of an export; only those of one run are in memory."""
    names = list(connection.execute(text(_RUNS)).scalars())
    for name in names:
        lines = list(connection.execute(text(_LINES), {"run": name}).scalars())
        yield json.dumps({_MARK: VERSION, "run": name, "lines": len(lines)})
        yield from lines
    for change in read_changes(connection):
        yield json.dumps({_MARK: VERSION, "change": change})


def readable_runs(connection: Connection, where: str) -> Iterator[StoredRun]:
    """Yield the runs of a damaged history, each up to the line that can't be read."""
    names = list(connection.execute(text(_RUNS)).scalars())
    for name in names:
        lines: list[bytes] = []
        with contextlib.suppress(HistoryDamaged):
            for line in connection.execute(text(_LINES), {"run": name}).scalars():
                lines.append(f"{line}\n".encode())
        yield StoredRun(f"{where}, run {name}", lines)


def is_export(path: Path) -> bool:
    """Return whether a file begins as an export does; raises OSError."""
    with open_regular(path) as file:
        return file.readline(200).startswith(f'{{"{_MARK}"'.encode())


@dataclass
class ExportReader:
    """Reads an export; ``changes`` are there once all runs were read."""

    path: Path
    changes: list[dict[str, Any]] = field(default_factory=list)

    def runs(self) -> Iterator[StoredRun]:
        """Yield the runs; raises HistoryError where the export is cut off or something else."""
        with open_regular(self.path) as file:
            number = 0
            while line := file.readline():
                number += 1
                mark = self._parse(line, number)
                if "change" in mark:
                    self.changes.append(mark["change"])
                    continue
                count = mark["lines"]
                lines = list(itertools.islice(file, count))
                if len(lines) < count:
                    raise HistoryError(
                        f"{self.path}:{number + len(lines)}: it ends within the run {mark['run']}; "
                        f"export it again"
                    )
                yield StoredRun(f"{self.path}:{number}, run {mark['run']}", lines)
                number += count

    def _parse(self, line: bytes, number: int) -> dict[str, Any]:
        problem = f"{self.path}:{number}: it is no line of 'mlms history export'; export it again"
        try:
            mark = json.loads(line)
            version = mark[_MARK]
            is_valid = "change" in mark or (mark["lines"] >= 0 and isinstance(mark["run"], str))
        except (ValueError, KeyError, TypeError, RecursionError):
            raise HistoryError(problem) from None
        if version != VERSION:
            raise HistoryError(
                f"{self.path}:{number}: it has version {version!r} of exports, this one reads "
                f"{VERSION}; upgrade pytest-mlms"
            )
        if not is_valid:
            raise HistoryError(problem)
        return dict(mark)


def read_changes(connection: Connection) -> Iterator[dict[str, Any]]:
    """Yield the changes of a history, which may be of an older version."""
    for found in connection.execute(text(_CHANGES)).mappings():
        values = {name: value for name, value in found.items() if name not in _LOCAL}
        yield {
            "line": found["line"],
            "quantity": found["series_quantity"],
            "key": found["series_key"],
            "values": values,
        }


def add_changes(connection: Connection, changes: Iterable[Mapping[str, Any]], where: str) -> int:
    """Add changes to a history that has their runs; return how many have no series there.

    Decisions of a person or of the gate stay, on either side. Raises HistoryError.
    """
    missing = 0
    for change in changes:
        try:
            values = _known_values(change["values"])
            series = _series_of(connection, change, values["first_run"])
        except (KeyError, TypeError, AttributeError):
            raise HistoryError(f"{where}: it has a change that is not one of an export") from None
        if series is None:
            missing += 1
        else:
            values["series"] = series
            _put(connection, values)
    return missing


def _known_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of columns that changes have in this version."""
    known = {}
    for column in schema.change.columns:
        name = column.name
        if name in values and name not in _LOCAL:
            known[name] = values[name]
    return known


def _series_of(connection: Connection, change: Mapping[str, Any], run: str) -> int | None:
    """Return the id of a change's series, by its point or by its key; None for none."""
    point = schema.point.c
    series = schema.series.c
    by_point = (
        select(series.id)
        .join(schema.point, point.series == series.id)
        .where(point.run == run, point.number == change["line"])
        .where(series.quantity == change["quantity"])
    )
    by_key = select(series.id).where(series.key == change["key"])
    found: int | None = connection.scalar(by_point) or connection.scalar(by_key)
    return found


def _put(connection: Connection, values: Mapping[str, Any]) -> None:
    """Add a change, or write the decision on it where the history has none."""
    change = schema.change.c
    of_series = change.series == values["series"]
    of_run = change.first_run == values["first_run"]
    status = connection.scalar(select(change.status).where(of_series, of_run))
    if status is None:
        connection.execute(insert(schema.change), values)
    elif status == "open" and values["status"] != "open":
        deciding = update(schema.change).where(of_series, of_run)
        connection.execute(deciding.values(values))
