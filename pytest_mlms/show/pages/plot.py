"""Pictures with two axes: lines, dots, bars, intervals and limits in a static SVG."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, TypeAlias

from markupsafe import Markup

from pytest_mlms.show.pages.axes import Axis
from pytest_mlms.show.pages.frame import Frame, Point, height_of_rows
from pytest_mlms.show.pages.legend import LegendEntry, draw_legend, height_of, place_entries
from pytest_mlms.show.pages.paints import filled, stroked
from pytest_mlms.show.pages.picture import WIDTH, picture
from pytest_mlms.show.pages.svg import CHARACTER, element, number, path_from, path_of, words

_THINNEST = 0.5  # of a bar, so that none vanishes
_MEDIUM = 1.8  # width of a line

Span: TypeAlias = tuple[float, float]
"""Two values of an axis."""


class _Pen(NamedTuple):
    """The paint and the width of a line, and the lengths of its dashes."""

    paint: str
    width: float
    dashes: str | None = None


def around(middle: float, half: float) -> Span:
    """Return the values at a distance of ``half`` on both sides: the thickness of a bar."""
    return middle - half, middle + half


@dataclass
class Plot:
    """A chart with axes ``x`` and ``y``, to which marks are added one by one.

    ``label`` says in words what it shows, for those who can't see it. Marks are in the units of the
    axes; ``title`` is their tooltip, ``paint`` a name of ``paints.PAINTS``.
    """

    label: str
    x: Axis
    y: Axis
    height: float = 240.0
    _marks: list[Markup] = field(default_factory=list)
    _labels: list[Markup] = field(default_factory=list)
    _entries: list[LegendEntry] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.y.names:
            self.height = height_of_rows(self.y.names)

    def line(self, points: Iterable[Point], paint: str, title: str = "") -> None:
        """Add a line through points."""
        path = path_of(map(self._frame.place, points))
        self._stroke(path, _Pen(paint, _MEDIUM), title)

    def dot(self, x: float, y: float, paint: str, title: str = "", radius: float = 3.5) -> None:
        """Add a dot."""
        left, top = self._frame.place((x, y))
        circle = element("circle", cx=left, cy=top, r=radius, title=title, **filled(paint))
        self._marks.append(circle)

    def points(self, points: Iterable[Point], paint: str) -> None:
        """Add many small dots, which have no tooltips and take few bytes.

        Those beyond the vertical axis are left out.
        """
        scale = self.y.scale
        path = ""
        for x, y in points:
            if scale.low <= y <= scale.high:
                left, top = self._frame.place((x, y))
                path += f"{path_from(left, top)}h0"
        if path:
            pen = stroked(paint, 2.6)
            dots = element("path", d=path, stroke_linecap="round", opacity="0.55", **pen)
            self._marks.append(dots)

    def mark(self, x: float, row: float, paint: str, title: str) -> None:
        """Add a thick line across a row, such as a limit."""
        left, top = self._frame.place((x, row))
        path = path_from(left, top - 9)
        self._stroke(f"{path}v18", _Pen(paint, 3), title)

    def bar(self, x: Span, y: Span, paint: str, title: str) -> None:
        """Add a rectangle between two values of each axis."""
        left, right = sorted(map(self._frame.across, x))
        top, bottom = sorted(map(self._frame.down, y))
        rectangle = element(
            "rect",
            x=left,
            y=top,
            width=max(right - left, _THINNEST),
            height=max(bottom - top, _THINNEST),
            title=title,
            **filled(paint),
        )
        self._marks.append(rectangle)

    def estimate(self, value: float, x: Span, row: float, paint: str, title: str) -> None:
        """Add a dot on its interval, a line from left to right with a tick at each end."""
        path = self._interval(x, row)
        line = element("path", d=path, **stroked(paint, _MEDIUM))
        left, top = self._frame.place((value, row))
        circle = element("circle", cx=left, cy=top, r=4, **filled(paint))
        group = element("g", line, circle, title=title)
        self._marks.append(group)

    def _interval(self, x: Span, y: float) -> str:
        left, right = map(self._frame.across, x)
        middle = self._frame.down(y)
        path = f"{path_from(left, middle)}H{number(right)}"
        for end in (left, right):
            path += f"{path_from(end, middle - 4)}v8"
        return path

    def whisker(self, x: float, y: Span, paint: str, title: str) -> None:
        """Add a vertical line from one value to another, with a tick at each end."""
        low, high = map(self._frame.down, y)
        middle = self._frame.across(x)
        path = f"{path_from(middle, low)}V{number(high)}"
        for end in (low, high):
            path += f"{path_from(middle - 4, end)}h8"
        self._stroke(path, _Pen(paint, _MEDIUM), title)

    def vertical(
        self, x: float, paint: str, text: str = "", dashed: bool = True, title: str = ""
    ) -> None:
        """Add a line across the chart at a value of ``x``, with a text at its foot."""
        frame = self._frame
        pen = _across(paint, dashed)
        self._stroke(frame.column(x), pen, title or text)
        left = frame.across(x)
        foot = frame.bottom - 8
        length = len(text) * CHARACTER
        label = words(left + 5, foot, text, "start", paint)
        if left + length > frame.right:
            label = words(left - 5, foot, text, "end", paint)
        self._labels.append(label)

    def horizontal(self, y: float, paint: str, text: str = "", dashed: bool = True) -> None:
        """Add a line across the chart at a value of ``y``, with a text in the legend."""
        pen = _across(paint, dashed)
        self._stroke(self._frame.row(y), pen, text)
        if text:
            self.legend(text, paint, dashed)

    def words(
        self, x: float, y: float, text: str, anchor: str = "start", paint: str = "ink"
    ) -> None:
        """Add a text that starts, ends or has its middle at a point, by ``anchor``."""
        left, top = self._frame.place((x, y))
        self._labels.append(words(left, top, text, anchor, paint))

    def beside(self, x: float, row: float, text: str) -> None:
        """Add a text on the right of a bar that ends at a value of ``x``."""
        self.words(x, row + 0.2, f"\N{NO-BREAK SPACE}{text}")

    def legend(self, name: str, paint: str, dashed: bool = False) -> None:
        """Add a line to the legend below the chart."""
        self._entries.append(LegendEntry(name, paint, dashed))

    def svg(self) -> Markup:
        """Return the chart."""
        frame = self._frame
        placed = place_entries(self._entries, WIDTH)
        height = self.height + height_of(placed)
        parts = [*frame.grid(), *self._marks]
        parts += frame.headings()
        parts += self._labels
        parts.append(draw_legend(placed, self.height + 6))
        return picture(self.label, height, parts)

    def _stroke(self, path: str, pen: _Pen, title: str = "") -> None:
        """Add a path, unless it is empty."""
        if not path:
            return
        attributes = stroked(pen.paint, pen.width)
        line = element("path", d=path, title=title, stroke_dasharray=pen.dashes, **attributes)
        self._marks.append(line)

    @cached_property
    def _frame(self) -> Frame:
        return Frame(self.x, self.y, self.height)


def _across(paint: str, dashed: bool) -> _Pen:
    """Return the pen of a line across the chart."""
    dashes = "4 3" if dashed else None
    return _Pen(paint, 1.4, dashes)
