"""Small pictures of series, for a row of a list: the values of up to 30 runs, without axes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from markupsafe import Markup

from pytest_mlms.core.records import UNUSABLE
from pytest_mlms.show.pages.drawing import element, filled, linear_scale, path_of, picture, stroked
from pytest_mlms.show.pages.numbers import value_text

if TYPE_CHECKING:
    from pytest_mlms.show.pages.series import SeriesView

MOST_RUNS = 30

_WIDTH = 120.0
_HEIGHT = 28.0
_EDGE = 3.0


def sparkline(series: SeriesView) -> Markup:
    """Return the newest values of a series as a line; a shade begins where a change does.

    Values of items that say nothing are left out. Nothing where no value is left.
    """
    points = [point for point in series.points if point.verdict not in UNUSABLE][-MOST_RUNS:]
    if not points:
        return Markup()
    values = [point.value for point in points]
    scale = linear_scale(values)
    step = (_WIDTH - 2 * _EDGE) / max(len(points) - 1, 1)
    places = []
    for index, value in enumerate(values):
        down = _EDGE + (1 - scale.share(value)) * (_HEIGHT - 2 * _EDGE)
        places.append((_EDGE + index * step, down))

    unit = series.unit
    runs = "1 run" if len(points) == 1 else f"{len(points)} runs"
    extent = f"{value_text(min(values), unit)} to {value_text(max(values), unit)}"
    label = f"{runs}, {extent}, the last {value_text(values[-1], unit)}"
    parts = []
    runs_shown = [point.run for point in points]
    change = series.last_change
    if change is not None and change.first_run in runs_shown:
        place = runs_shown.index(change.first_run)
        label += f"; {change.text} in the last {len(points) - place}"
        left = max(_EDGE + (place - 0.5) * step, 0.0)
        paint = filled("worse" if change.is_worse else "band")
        parts.append(element("rect", x=left, y=0, width=_WIDTH - left, height=_HEIGHT, **paint))
    if len(places) > 1:
        parts.append(element("path", d=path_of(places), **stroked("muted", 1.3)))
    last_x, last_y = places[-1]
    parts.append(element("circle", cx=last_x, cy=last_y, r=2.4, **filled("ink")))
    return picture(label, _HEIGHT, parts, _WIDTH, kind="spark")
