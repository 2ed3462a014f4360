"""Series of a history: points over time, changes, and the software that differed.

``history.queries`` has runs and hosts as records that are shown as they are.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from markupsafe import Markup
from sqlalchemy import Connection, Engine

from pytest_mlms.core.records import UNUSABLE
from pytest_mlms.keep.history.change_groups import differences_between, points_beside
from pytest_mlms.keep.history.changes import Change, newest_changes
from pytest_mlms.keep.history.errors import HistoryError
from pytest_mlms.keep.history.queries import (
    PointRow,
    StackInfo,
    changes_between,
    last_points,
    series_by_id,
    series_ids,
    stacks,
)
from pytest_mlms.keep.history.run_content import gather
from pytest_mlms.keep.history.run_lines import read_run
from pytest_mlms.keep.history.series import case_label
from pytest_mlms.keep.history.store import open_to_read
from pytest_mlms.show.pages.canvas import Figure, Plot
from pytest_mlms.show.pages.drawing import Axis, Scale, linear_scale, short_value
from pytest_mlms.show.pages.item import ItemView
from pytest_mlms.show.pages.numbers import interval_text, quantity_label, signed, value_text
from pytest_mlms.show.pages.run import RunView

_LAST = 200  # points of a series
_MOST_PACKAGES = 3  # that a text names; the rest is counted
_SHORT_COMMIT = 10
_MOST_CHANGES = 1000  # of the series that are shown at once
_MOST_FIGURES = 24
_SERIES_OF_ITEM = 2  # of an item that passed; all limits of one that did not
_DATE = slice(10)  # of a time in ISO 8601
_DAY = slice(5, 10)  # month and day of it
_CLOCK = slice(11, 16)  # hours and minutes
_MOST_DATES = 5
_ROOM = 1.0  # times the spread of the values, beyond which intervals are cut off
_OTHER_SOFTWARE = "c1"  # paint of a point whose software differs from the one before


@dataclass(frozen=True)
class SeriesPoint:
    """A point; ``software`` is what differs from the stack of the point before it, "" if nothing.

    Values are in the unit of the series.
    """

    run: str
    started: str
    value: float
    low: float | None
    high: float | None
    verdict: str
    git_sha: str | None
    host: str | None
    software: str = ""


@dataclass(frozen=True)
class ChangeView:
    """A change of a series: ``text`` says by how much, with its interval."""

    id: int
    series: int
    model: str
    kind: str
    case: str
    machine: str
    quantity: str
    unit: str
    first_run: str
    started: str
    before: float
    after: float
    ratio: float
    low: float | None
    high: float | None
    status: str
    cause: str | None
    confirmed_by: str | None
    reason: str | None
    is_worse: bool
    text: str

    @property
    def levels(self) -> str:
        """Both levels: "9.79 ms → 10.6 ms"."""
        return f"{value_text(self.before, self.unit)} → {value_text(self.after, self.unit)}"

    @property
    def is_loss(self) -> bool:
        """True if the quantity became worse, and nobody accepted or dismissed it."""
        return self.is_worse and self.status in ("open", "confirmed")


@dataclass(frozen=True)
class SeriesView:
    """A series with its last points, the newest last, and the changes among these."""

    id: int
    model: str
    kind: str
    case: str
    machine: str
    quantity: str
    unit: str
    better: str
    control: bool
    points: tuple[SeriesPoint, ...]
    changes: tuple[ChangeView, ...]

    @property
    def last_text(self) -> str:
        """The newest value with its interval, "-" without points."""
        if not self.points:
            return "-"
        last = self.points[-1]
        return interval_text(last.value, last.low, last.high, self.unit)

    @property
    def drift(self) -> float | None:
        """The newest value over the median of those before it; None without any to compare."""
        values = [point.value for point in self.points if point.verdict not in UNUSABLE]
        usual = median(values[:-1]) if len(values) > 1 else 0.0
        return values[-1] / usual if usual > 0 else None

    @property
    def drift_text(self) -> str:
        """The change of the newest value in percent: "+0.3 %"; "" without any to compare."""
        return "" if self.drift is None or self.drift < 0 else signed(self.drift)

    @property
    def last_change(self) -> ChangeView | None:
        """The newest change that was neither dismissed nor undone."""
        kept = [each for each in self.changes if each.status not in ("dismissed", "undone")]
        return kept[-1] if kept else None


def read_series(history: Engine, ids: Iterable[int], last: int = _LAST) -> Sequence[SeriesView]:
    """Return series by their ids, each with its last points; those that there aren't are left out.

    Raises HistoryError.
    """
    wanted = list(ids)
    with history.connect() as connection:
        newest, _ = newest_changes(connection, _MOST_CHANGES, series=wanted)
        changes = [change_view(change) for change in reversed(newest)]
        known = series_by_id(connection, wanted)
        rows = last_points(connection, [info.id for info in known], last)
        digests = {row.stack for points in rows.values() for row in points}
        software = stacks(connection, digests)
    found = []
    for info in known:
        runs = {row.run for row in rows[info.id]}
        of_series = [change for change in changes if change.series == info.id]
        found.append(
            SeriesView(
                id=info.id,
                model=info.model,
                kind=info.kind,
                case=info.case,
                machine=info.machine,
                quantity=info.quantity,
                unit=info.unit,
                better=info.better,
                control=info.control,
                points=tuple(_points(rows[info.id], software)),
                changes=tuple(change for change in of_series if change.first_run in runs),
            )
        )
    return found


def _points(rows: Sequence[PointRow], software: Mapping[str, StackInfo]) -> Iterator[SeriesPoint]:
    before: StackInfo | None = None
    for row in rows:
        stack = software.get(row.stack or "")
        changes = changes_between(before, stack) if before and stack else ()
        yield SeriesPoint(
            run=row.run,
            started=row.started,
            value=row.value,
            low=row.low,
            high=row.high,
            verdict=row.verdict,
            git_sha=row.git_sha,
            host=row.host,
            software=_listed([(each.name, each.before, each.after) for each in changes]),
        )
        before = stack or before


def _listed(differences: Sequence[tuple[str, str | None, str | None]]) -> str:
    """Return names with their values before and after; the first of many, the rest counted."""
    texts = []
    for name, before, after in differences[:_MOST_PACKAGES]:
        old, new = before or "none", after or "none"
        if name == "git":
            old, new = old[:_SHORT_COMMIT], new[:_SHORT_COMMIT]
        texts.append(f"{name} {old} → {new}")
    if len(differences) > _MOST_PACKAGES:
        texts.append(f"{len(differences) - _MOST_PACKAGES} more")
    return ", ".join(texts)


def moved_with(connection: Connection, change: ChangeView) -> str:
    """Return what differs between the points before and after a change, "" if nothing is known."""
    beside = points_beside(connection, change.series, change.first_run, change.started)
    if beside is None:
        return ""
    differences = differences_between(connection, *beside)
    return _listed([(each.name, each.before, each.after) for each in differences])


def change_view(change: Change) -> ChangeView:
    """Return a change with what people are told of it: "+8.1 % (+7.2 % to +9.0 %)"."""
    text = signed(change.ratio)
    if change.low is not None and change.high is not None:
        text += f" ({signed(change.low)} to {signed(change.high)})"
    return ChangeView(
        id=change.id,
        series=change.series,
        model=str(change.parts.get("manifest", "")),
        kind=str(change.parts.get("kind", "")),
        case=case_label(change.parts),
        machine=str(change.parts.get("machine", "")),
        quantity=change.quantity,
        unit=change.unit,
        first_run=change.first_run,
        started=change.started,
        before=change.before,
        after=change.after,
        ratio=change.ratio,
        low=change.low,
        high=change.high,
        status=change.status,
        cause=change.cause,
        confirmed_by=change.confirmed_by,
        reason=change.reason,
        is_worse=change.is_worse,
        text=text,
    )


def series_of_items(history: Engine, items: Sequence[ItemView]) -> Mapping[str, Sequence[int]]:
    """Return the ids of the series of each item by its anchor: those that its points are of.

    The limits of an item come first among its quantities. Raises HistoryError.
    """
    quantities: dict[tuple[Path, str], Mapping[str, str]] = {}
    for folder in dict.fromkeys(item.folder for item in items):
        for nodeid, names in quantities_of_run(folder).items():
            quantities[folder, nodeid] = names
    with history.connect() as connection:
        ids = series_ids(connection, [key for names in quantities.values() for key in names])
    found = {}
    for item in items:
        limited = [limit.quantity for limit in item.limits]
        of_item = quantities.get((item.folder, item.nodeid), {})
        ordered = sorted(of_item, key=lambda key: of_item[key] not in limited)
        found[item.anchor] = [ids[key] for key in ordered if key in ids]
    return found


def quantities_of_run(folder: Path) -> Mapping[str, Mapping[str, str]]:
    """Return the quantities of a run's items by node id, by the keys of their series.

    Raises HistoryError.
    """
    path = folder / "results.jsonl"
    try:
        with path.open("rb") as file:
            content = gather(read_run(file, str(path)))
    except OSError as error:
        raise HistoryError(f"{path}: {error.strerror}; name the folder of a run") from None
    return {
        nodeid: {key: point.series.quantity for key, point in measured.points.items()}
        for nodeid, measured in (content.items if content else {}).items()
    }


def history_figures(address: str, runs: Sequence[RunView]) -> Sequence[Figure]:
    """Return a picture for each series of the worst items; raises HistoryError."""
    history = open_to_read(address)
    items = sorted((item for run in runs for item in run.items), key=lambda item: item.badness)
    known = series_of_items(history, items)
    wanted: list[int] = []
    for item in items:
        count = _SERIES_OF_ITEM
        if item.is_bad:
            count = max(count, len(item.limits))
        wanted += known[item.anchor][:count]
    chosen = list(dict.fromkeys(wanted))[:_MOST_FIGURES]

    figures = []
    for series in read_series(history, chosen):
        chart = series_chart(series)
        if chart is None:
            continue
        caption = f"{series.model} {series.case}: {quantity_label(series.quantity)}"
        caption += f", on {series.machine}"
        for change in series.changes:
            caption += f"; {change.text} since {change.started[_DATE]}"
            point = next(point for point in series.points if point.run == change.first_run)
            if point.software:
                caption += f", with {point.software}"
        figures.append(Figure(caption, chart))
    return figures


def series_chart(series: SeriesView) -> Markup | None:
    """Return the points of a series in their order, with a line ahead of each change.

    A few runs have their dates on the axis. None without any point.
    """
    points = series.points
    if not points:
        return None
    count = len(points)
    days = [point.started[_DAY] for point in points]
    if len({point.started[_DATE] for point in points}) == 1:
        days = [point.started[_CLOCK] for point in points]
    ticks = range(0, count, math.ceil(count / _MOST_DATES))
    label = quantity_label(series.quantity)
    runs = "1 run" if count == 1 else f"{count:,} runs"
    scale = linear_scale(_within(points))
    plot = Plot(
        f"{label} of {series.model} {series.case} over {runs}; last {series.last_text}",
        Axis("run", Scale(-0.5, count - 0.5), lambda index: days[int(index)], ticks=ticks),
        Axis(label, scale, short_value(series.unit)),
    )
    names = [point.run for point in points]
    for change in series.changes:
        ahead = names.index(change.first_run) - 0.5
        short, _, _ = change.text.partition(" (")
        plot.vertical(ahead, _paint_of(change), short, title=change.text)
    plot.line([(index, point.value) for index, point in enumerate(points)], "c0")
    for index, point in enumerate(points):
        _add_point(plot, index, point, series.unit)
    plot.legend("run", "c0")
    if any(point.software for point in points):
        plot.legend("run with other software", _OTHER_SOFTWARE)
    if series.changes:
        plot.legend("change", _paint_of(series.changes[-1]), dashed=True)
    ends = [end for point in points for end in (point.low, point.high) if end is not None]
    if not all(map(scale.holds, ends)):
        plot.legend("interval (an arrow: it goes on beyond the picture)", "faint")
    return plot.svg()


def _paint_of(change: ChangeView) -> str:
    return "bad" if change.is_worse else "good"


def _within(points: Sequence[SeriesPoint]) -> Sequence[float]:
    """Return the values, and how far most intervals reach, but not much further than the values.

    Intervals of few processes are wide; what a series shows is the scatter of its values.
    """
    values = [point.value for point in points]
    lowest = min(values)
    highest = max(values)
    room = _ROOM * (highest - lowest) or abs(values[0])
    lows = [point.low for point in points if point.low is not None]
    highs = [point.high for point in points if point.high is not None]
    if lows:
        lowest = max(median(lows), lowest - room)
    if highs:
        highest = min(median(highs), highest + room)
    return [*values, lowest, highest]


def _add_point(plot: Plot, index: int, point: SeriesPoint, unit: str) -> None:
    value = interval_text(point.value, point.low, point.high, unit)
    title = f"{point.started[_DATE]}: {value}"
    if point.git_sha:
        title += f", {point.git_sha[:10]}"
    if point.software:
        title += f"; {point.software}"
    if point.low is not None and point.high is not None:
        plot.whisker(index, (point.low, point.high), "faint", title)
    paint = "muted" if point.verdict in UNUSABLE else "c0"
    plot.dot(index, point.value, _OTHER_SOFTWARE if point.software else paint, title)
