"""Chart of a series over time: values with intervals, changes, and where software differed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

from markupsafe import Markup

from pytest_mlms.core.records import UNUSABLE
from pytest_mlms.show.pages.canvas import Plot
from pytest_mlms.show.pages.numbers import interval_text, quantity_label
from pytest_mlms.show.pages.scales import Axis, Scale, linear_scale, short_value
from pytest_mlms.show.pages.series import ChangeView, SeriesPoint, SeriesView

_DATE = slice(10)  # of a time in ISO 8601
_DAY = slice(5, 10)  # month and day of it
_MOST_DATES = 5
_ROOM = 1.0  # times the spread of the values, beyond which intervals are cut off
_OTHER_SOFTWARE = "c1"  # paint of a point whose software differs from the one before


def series_chart(series: SeriesView) -> Markup | None:
    """Return the points of a series in their order; None without any."""
    points = series.points
    if not points:
        return None
    label = quantity_label(series.quantity)
    subject = f"{label} of {series.model} {series.case}"
    runs = "1 run" if len(points) == 1 else f"{len(points):,} runs"
    plot = Plot(
        f"{subject} over {runs}; last {series.last_text}",
        _runs_axis(points),
        Axis(label, linear_scale(_within(points)), short_value(series.unit)),
    )
    _add_changes(plot, series)
    plot.line([(index, point.value) for index, point in enumerate(points)], "c0")
    for index, point in enumerate(points):
        _add_point(plot, index, point, series.unit)
    _add_legend(plot, series)
    return plot.svg()


def _runs_axis(points: Sequence[SeriesPoint]) -> Axis:
    """Return the axis of the points' numbers, on which a few have their dates."""
    count = len(points)
    scale = Scale(-0.5, count - 0.5)
    step = math.ceil(count / _MOST_DATES)
    days = [point.started[_DAY] for point in points]
    return Axis("run", scale, lambda index: days[int(index)], ticks=range(0, count, step))


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


def _add_changes(plot: Plot, series: SeriesView) -> None:
    """Add a line ahead of the first run after each change."""
    runs = [point.run for point in series.points]
    for change in series.changes:
        ahead = runs.index(change.first_run) - 0.5
        short, _, _ = change.text.partition(" (")
        plot.vertical(ahead, _paint_of_change(change), short, title=change.text)


def _paint_of_change(change: ChangeView) -> str:
    return "bad" if change.is_worse else "good"


def _add_point(plot: Plot, index: int, point: SeriesPoint, unit: str) -> None:
    title = _in_words(point, unit)
    if point.low is not None and point.high is not None:
        plot.whisker(index, (point.low, point.high), "faint", title)
    plot.dot(index, point.value, _paint_of(point), title)


def _in_words(point: SeriesPoint, unit: str) -> str:
    value = interval_text(point.value, point.low, point.high, unit)
    words = f"{point.started[_DATE]}: {value}"
    if point.git_sha:
        words += f", {point.git_sha[:10]}"
    if point.software:
        words += f"; {point.software}"
    return words


def _paint_of(point: SeriesPoint) -> str:
    if point.software:
        return _OTHER_SOFTWARE
    return "muted" if point.verdict in UNUSABLE else "c0"


def _add_legend(plot: Plot, series: SeriesView) -> None:
    plot.legend("run", "c0")
    if any(point.software for point in series.points):
        plot.legend("run with other software", _OTHER_SOFTWARE)
    if series.changes:
        plot.legend("change", _paint_of_change(series.changes[-1]), dashed=True)
