"""Tables of a history: series, the points of one, and versions of a package."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from pytest_mlms.core.units import format_quantity
from pytest_mlms.decide.upgrade.labels import spread_text
from pytest_mlms.keep.history.by_version import VersionSeries
from pytest_mlms.keep.history.queries import (
    PackageChange,
    PointRow,
    SeriesInfo,
    StackInfo,
    changes_between,
)
from pytest_mlms.show.report.sparkline import sparkline
from pytest_mlms.show.report.table import KEEP, format_table

EARLIER = 29
"""Points before the last one that it is compared with."""

_LEAST_EARLIER = 3
_SPARKS = 16
_COMMIT = 7  # digits
_MOST_CHANGES = 6
_INDENT = "    "


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
        row = [point.run, *_value_cells(point, series.unit, style), point.verdict, _commit(point)]
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
        cells = [*_value_cells(points[-1], series.unit, style), _change(values)]
        cells.append(sparkline(values[-_SPARKS:]))
    return cells if style.unicode else cells[:-1]


def _change(values: Sequence[float]) -> str:
    """Return the last value over the median of those before."""
    *earlier, last = values
    if len(earlier) < _LEAST_EARLIER:
        return "-"
    return _percent(last, median(earlier))


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


def _commit(point: PointRow) -> str:
    if not point.git_sha:
        return "-"
    return point.git_sha[:_COMMIT] + ("*" if point.dirty else "")


def _change_lines(changes: Sequence[PackageChange], style: Style) -> list[str]:
    """Return the lines that tell what changed in the stack; none where nothing did."""
    words = [_change_words(change, style) for change in changes[:_MOST_CHANGES]]
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


def _change_words(change: PackageChange, style: Style) -> str:
    if change.before is None:
        return f"new: {change.name} {change.after}"
    if change.after is None:
        return f"gone: {change.name} {change.before}"
    return f"{change.name} {change.before} {style.arrow} {change.after}"
