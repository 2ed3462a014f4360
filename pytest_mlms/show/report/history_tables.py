"""Tables of a history: series, points, versions of a package; the same as CSV and JSON."""

from __future__ import annotations

import csv
import json
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import IO, Any

from sqlalchemy import Connection

from pytest_mlms.core.serialization import to_plain
from pytest_mlms.core.units import format_quantity
from pytest_mlms.decide.upgrade.labels import spread_text
from pytest_mlms.keep.history.by_version import VersionSeries, by_version
from pytest_mlms.keep.history.queries import (
    PackageChange,
    PointRow,
    SeriesInfo,
    StackInfo,
    changes_between,
    points,
    stacks,
)
from pytest_mlms.show.report.table import KEEP, format_table

EARLIER = 29
"""Points before the last one that it is compared with."""

_LEAST_EARLIER = 3
_SPARKS = 16
_COMMIT = 7  # digits
_MOST_CHANGES = 6
_INDENT = "    "

Cells = Mapping[str, Any]
_BLOCKS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True)
class Style:
    """The width of the output in columns, and whether it can have more than ASCII."""

    width: int
    unicode: bool = True

    @property
    def arrow(self) -> str:
        """The sign between two versions."""
        return "→" if self.unicode else "->"

    @property
    def about(self) -> str:
        """The sign before half an interval."""
        return "±" if self.unicode else "+-"


def series_table(
    series: Sequence[SeriesInfo],
    points: Mapping[int, Sequence[PointRow]],
    counts: Mapping[int, int],
    style: Style,
) -> Iterator[str]:
    """Yield a line for each series: how many points, the last one, its change, and a sparkline.

    ``points`` has the last EARLIER + 1 usable points of each, by its id. Machines have numbers,
    which are explained below the table, where there are several.
    """
    machines = list(dict.fromkeys(each.machine for each in series))
    names = ["model", "case", "quantity"]
    numbers = ["points", "last", "interval", "change"]
    if style.unicode:
        numbers.append("trend")
    rows = []
    for each in series:
        row = [each.model, each.case, each.quantity]
        if len(machines) > 1:
            row.append(_footnote(machines, each.machine))
        row.append(f"{counts[each.id]:,}")
        row += _last_cells(each, points[each.id], style)
        rows.append(row)
    if len(machines) > 1:
        names.append("machine")
    for lines in format_table([*names, *numbers], rows, style.width, len(names)):
        yield from lines
    if len(machines) > 1:
        for machine in machines:
            text = f"{_footnote(machines, machine)} {machine}"
            yield from textwrap.wrap(text, style.width)


def _footnote(machines: Sequence[str], machine: str) -> str:
    number = machines.index(machine) + 1
    return f"[{number}]"


def points_table(
    series: SeriesInfo,
    points: Sequence[PointRow],
    stacks: Mapping[str, StackInfo],
    style: Style,
) -> Iterator[str]:
    """Yield a line for each point, the newest last, and above it what changed since the one before.

    The name of a run begins with its time in UTC. A commit with a star had changed files.
    """
    has_hosts = len({point.host for point in points}) > 1
    header = ["run", "value", "interval", "verdict", "commit"]
    if has_hosts:
        header.append("host")
    rows = []
    for point in points:
        commit = point.git_sha[:_COMMIT] + ("*" if point.dirty else "") if point.git_sha else "-"
        row = [point.run, *_value_cells(point, series.unit, style), point.verdict, commit]
        if has_hosts:
            row.append(point.host or "?")
        rows.append(row)
    top, *table = format_table(header, rows, style.width, left=1)
    yield from top
    before = None
    for point, lines in zip(points, table, strict=True):
        if before is not None:
            yield from _change_lines(stack_changes(before, point, stacks), style)
        yield from lines
        before = point


def versions_table(found: VersionSeries, package: str, style: Style) -> Iterator[str]:
    """Yield a line for each version of a package, the newest last."""
    header = [package, "runs", "mean", "interval", "change", "from", "to"]
    rows = []
    before = None
    for row in found.rows:
        cells = [row.version, f"{row.runs:,}"]
        cells.append(_shown(row.value, found.series.unit))
        cells.append(_interval(row.value, row.low, row.high, style))
        cells.append("-" if before is None else _percent(row.value, before))
        cells += [_date(row.first), _date(row.last)]
        rows.append(cells)
        before = row.value
    for lines in format_table(header, rows, style.width, left=1):
        yield from lines
    if found.unknown:
        yield f"{found.unknown:,} more points are of stacks that do not have it"


def stack_changes(
    before: PointRow, after: PointRow, stacks: Mapping[str, StackInfo]
) -> list[PackageChange]:
    """Return the versions that differ between the stacks of two points.

    pytest-mlms is one of them: it measured, whether or not it is in the stack.
    """
    old = stacks.get(before.stack or "")
    new = stacks.get(after.stack or "")
    changes = changes_between(old, new) if old and new else []
    ours = "pytest-mlms"
    if before.plugin != after.plugin and all(change.name != ours for change in changes):
        changes.append(PackageChange(ours, before.plugin, after.plugin))
    return changes


def _last_cells(series: SeriesInfo, points: Sequence[PointRow], style: Style) -> list[str]:
    values = [point.value for point in points]
    if not values:
        cells = ["-", "-", "-", ""]
    else:
        *earlier, last = values
        change = _percent(last, median(earlier)) if len(earlier) >= _LEAST_EARLIER else "-"
        cells = [*_value_cells(points[-1], series.unit, style), change]
        cells.append(sparkline(values[-_SPARKS:]))
    return cells if style.unicode else cells[:-1]


def _percent(value: float, before: float) -> str:
    if before == 0:
        return "-"
    return f"{100 * (value / before - 1):+.1f}{KEEP}%"


def _value_cells(point: PointRow, unit: str, style: Style) -> list[str]:
    interval = _interval(point.value, point.low, point.high, style)
    return [_shown(point.value, unit), interval]


def _shown(value: float, unit: str) -> str:
    return format_quantity(value, unit).replace(" ", KEEP)


def _interval(value: float, low: float | None, high: float | None, style: Style) -> str:
    """Return half of an interval as a share of the value."""
    text = spread_text(value, low, high) or "-"
    return text.replace("±", style.about).replace(" ", KEEP)


def _date(time: str) -> str:
    date, _, _ = time.partition("T")
    return date


def _change_lines(changes: Sequence[PackageChange], style: Style) -> list[str]:
    """Return the lines that tell what changed in the stack; none where nothing did."""
    words = []
    for change in changes[:_MOST_CHANGES]:
        if change.before is None:
            words.append(f"new: {change.name} {change.after}")
        elif change.after is None:
            words.append(f"gone: {change.name} {change.before}")
        else:
            words.append(f"{change.name} {change.before} {style.arrow} {change.after}")
    if len(changes) > _MOST_CHANGES:
        words.append(f"{len(changes) - _MOST_CHANGES:,} more")
    text = ", ".join(words)
    return textwrap.wrap(
        text,
        style.width,
        initial_indent=_INDENT,
        subsequent_indent=_INDENT,
        break_on_hyphens=False,
    )


def points_data(
    connection: Connection, chosen: Iterable[SeriesInfo], last: int | None = None
) -> Iterator[Cells]:
    """Yield a row for each point: its series, its run, and what changed since the one before."""
    for series in chosen:
        found = points(connection, series.id, last)
        known = stacks(connection, [point.stack for point in found])
        before: PointRow | None = None
        for point in found:
            changes = stack_changes(before, point, known) if before else []
            changed = {change.name: [change.before, change.after] for change in changes}
            plain: dict[str, Any] = to_plain(point)
            for name in ("number", "machine_class"):
                del plain[name]
            yield {**_of_series(series), **plain, "changed": changed}
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
    if form == "json":  # a row on each line, without holding them all
        separator = "[\n"
        for row in rows:
            file.write(separator + json.dumps(row))
            separator = ",\n"
        file.write("[]\n" if separator == "[\n" else "\n]\n")
        return
    writer = None
    for row in rows:
        if writer is None:
            writer = csv.DictWriter(file, list(row), lineterminator="\n")
            writer.writeheader()
        cells = dict(row)
        for name, value in row.items():
            if isinstance(value, dict):
                cells[name] = json.dumps(value) if value else ""
        writer.writerow(cells)


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


def sparkline(values: Sequence[float]) -> str:
    """Return a character for each value, from the lowest block to the highest.

    Values that are all the same are in the middle. The lowest value is the lowest block, so a line
    tells when something changed, and not by how much.
    """
    if not values:
        return ""
    low = min(values)
    span = max(values) - low
    if span <= 0:
        return _BLOCKS[3] * len(values)
    highest = len(_BLOCKS) - 1
    return "".join(_BLOCKS[round((value - low) / span * highest)] for value in values)
