"""Points and versions of a history as rows of CSV and JSON."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import IO, Any

from sqlalchemy import Connection

from pytest_mlms.core.serialization import to_plain
from pytest_mlms.keep.history.by_version import by_version
from pytest_mlms.keep.history.queries import PointRow, SeriesInfo, StackInfo, points, stacks
from pytest_mlms.show.report.history_tables import stack_changes

Cells = Mapping[str, Any]


def points_data(
    connection: Connection, chosen: Iterable[SeriesInfo], last: int | None = None
) -> Iterator[Cells]:
    """Yield a row for each point: its series, its run, and what changed since the one before."""
    for series in chosen:
        found = points(connection, series.id, last)
        known = stacks(connection, [point.stack for point in found])
        before = None
        for point in found:
            changed = _changed(before, point, known)
            yield {**_of_series(series), **_of_point(point), "changed": changed}
            before = point


def versions_data(
    connection: Connection, chosen: Iterable[SeriesInfo], package: str
) -> Iterator[Cells]:
    """Yield a row for each version of a package in each series; raises HistoryError."""
    for found in by_version(connection, chosen, package):
        for row in found.rows:
            yield {**_of_series(found.series), "package": package, **to_plain(row)}


def write_rows(rows: Iterable[Cells], form: str, file: IO[str]) -> None:
    """Write rows as ``csv``, with JSON in cells that are no single value, or as ``json``."""
    if form == "json":
        _write_json(rows, file)
        return
    writer = None
    for row in rows:
        if writer is None:
            writer = csv.DictWriter(file, list(row), lineterminator="\n")
            writer.writeheader()
        writer.writerow({name: _cell(value) for name, value in row.items()})


def _write_json(rows: Iterable[Cells], file: IO[str]) -> None:
    """Write a list with a row on each line, without holding them all."""
    separator = "[\n"
    for row in rows:
        file.write(separator + json.dumps(row))
        separator = ",\n"
    file.write("[]\n" if separator == "[\n" else "\n]\n")


def _cell(value: Any) -> Any:
    if isinstance(value, dict):
        return json.dumps(value) if value else ""
    return value


def _changed(
    before: PointRow | None, point: PointRow, known: Mapping[str, StackInfo]
) -> dict[str, list[str | None]]:
    if before is None:
        return {}
    changes = stack_changes(before, point, known)
    return {change.name: [change.before, change.after] for change in changes}


def _of_series(series: SeriesInfo) -> dict[str, Any]:
    return {
        "model": series.model,
        "kind": series.kind,
        "case": series.case,
        "quantity": series.quantity,
        "unit": series.unit,
        "better": series.better,
        "machine": series.machine,
    }


def _of_point(point: PointRow) -> dict[str, Any]:
    plain: dict[str, Any] = to_plain(point)
    for name in ("number", "machine_class"):
        del plain[name]
    return plain
