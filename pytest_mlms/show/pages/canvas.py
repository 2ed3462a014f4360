"""Pictures with two axes: lines, dots, bars, intervals and limits in a static SVG."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

from markupsafe import Markup

from pytest_mlms.core.text import shortened
from pytest_mlms.show.pages.drawing import (
    CHARACTER,
    WIDTH,
    Axis,
    element,
    filled,
    group_of_words,
    number,
    path_from,
    path_of,
    picture,
    stroked,
    words,
)

_TOP = 14.0
_BOTTOM = 40.0
_RIGHT = 14.0
_MARGIN = 12.0  # of the texts of the vertical axis
_LONGEST_BESIDE = 23  # characters of names beside their rows; longer ones are above them
_LONGEST_ABOVE = 54  # characters of a name above its row; the rest is in the tooltip
_TITLE = 12.0  # height of the title of the vertical axis, above the chart
_ROW = 22.0  # height of a row
_NAME = 16.0  # height of a name above its row
_COLUMN = 50.0  # least distance of ticks from left to right
_GAP = 8.0  # least distance of their texts
_LINE = 36.0  # least distance of ticks from top to bottom
_THINNEST = 0.5  # of a bar, so that none vanishes
_MEDIUM = 1.8  # width of a line
_ACROSS = 1.4  # width of a line across the chart
_ARROW = 5.0  # length of the head of an interval that goes on beyond the chart
_LEGEND_ROW = 18.0
_LEGEND_LEFT = 8.0
_SAMPLE = 18.0  # length of a line's sample in the legend
_SAMPLE_GAP = 5.0  # from the sample to the name
_LONGEST_NAME = 60  # characters of a name in the legend

Point: TypeAlias = tuple[float, float]
"""A value of ``x`` and one of ``y``, or their pixels."""

Span: TypeAlias = tuple[float, float]
"""Two values of an axis."""

Context: TypeAlias = Mapping[str, Any]
"""The names that the template of a section uses, such as ``figures``, a list of ``Figure``."""


class Figure(NamedTuple):
    """A picture with its caption."""

    caption: str
    svg: Markup


def around(middle: float, half: float) -> Span:
    """Return the values at a distance of ``half`` on both sides: the thickness of a bar."""
    return middle - half, middle + half


@dataclass(frozen=True)
class Frame:
    """The places of two axes in a picture of this height, and their grid with its texts."""

    x: Axis
    y: Axis
    height: float

    @cached_property
    def left(self) -> float:
        """The left end, beside the names or numbers of the vertical axis."""
        if self._names_are_above:
            return _MARGIN
        texts = self.y.names or [self.y.text(value) for value in self._heights]
        longest = max(map(len, texts), default=0)
        return _MARGIN + longest * CHARACTER

    @property
    def right(self) -> float:
        """The right end."""
        return WIDTH - _RIGHT

    @property
    def top(self) -> float:
        """The upper end, below the title of the vertical axis if it has one."""
        return _TOP + _TITLE if self.y.title else _TOP

    @property
    def bottom(self) -> float:
        """The lower end."""
        return self.height - _BOTTOM

    @cached_property
    def _names_are_above(self) -> bool:
        """True if names have lines of their own, as one is too long for a place beside its row."""
        return _are_above(self.y.names)

    @cached_property
    def _heights(self) -> Sequence[float]:
        """The ticks of a vertical axis of numbers."""
        most = int((self.height - _TOP - _BOTTOM) / _LINE)
        return self.y.ticks_of(most)

    def across(self, x: float) -> float:
        """Return a value of ``x`` in pixels from the left."""
        share = self.x.scale.share(x)
        return self.left + share * (self.right - self.left)

    def down(self, y: float) -> float:
        """Return a value of ``y`` in pixels from the top; rows are counted from there."""
        if self.y.names:
            row = min(max(round(y), 0), len(self.y.names) - 1)
            foot = self.top + (row + 1) * _pitch(self.y.names)
            return foot + (y - row - 0.5) * _ROW
        share = self.y.scale.share(y)
        return self.bottom - share * (self.bottom - self.top)

    def place(self, point: Point) -> Point:
        """Return a point of values in pixels."""
        x, y = point
        return self.across(x), self.down(y)

    def row(self, y: float) -> str:
        """Return the path of a line from the left end to the right end at a value of ``y``."""
        start = path_from(self.left, self.down(y))
        return f"{start}H{number(self.right)}"

    def column(self, x: float) -> str:
        """Return the path of a line from the upper end to the lower end at a value of ``x``."""
        start = path_from(self.across(x), self.top)
        return f"{start}V{number(self.bottom)}"

    def grid(self) -> Iterator[Markup]:
        """Yield the lines of the grid, and the texts of both axes."""
        columns = self._columns()
        texts = []
        for value in columns:
            text = self.x.text(value)
            farthest = WIDTH - 2 - len(text) * CHARACTER / 2
            texts.append((min(self.across(value), farthest), self.bottom + 15, text))
        yield _grid_line(map(self.column, columns))
        yield group_of_words(texts, "middle", "muted")
        middle = (self.left + self.right) / 2
        yield words(middle, self.height - 6, self.x.title, "middle", "ink")

        if not self.y.names:
            left = self.left - 5
            heights = self._heights
            texts = [(left, self.down(value) + 4, self.y.text(value)) for value in heights]
            yield _grid_line(map(self.row, heights))
            yield group_of_words(texts, "end", "muted")
            yield words(2, _TOP - 2, self.y.title, "start", "ink")
        elif not self._names_are_above:
            left = self.left - 6
            texts = [(left, self.down(row) + 4, name) for row, name in enumerate(self.y.names)]
            yield group_of_words(texts, "end", "ink")

    def _columns(self) -> Sequence[float]:
        """Return the ticks of the horizontal axis, as many as have room for their texts."""
        length = self.right - self.left
        for count in range(int(length / _COLUMN), 1, -1):
            ticks = self.x.ticks_of(count)
            if self._have_room(ticks):
                return ticks
        return self.x.ticks_of(1)

    def _have_room(self, ticks: Sequence[float]) -> bool:
        """Return whether the texts don't overlap, as they may on a logarithmic axis."""
        end = -math.inf
        for value in ticks:
            half = len(self.x.text(value)) * CHARACTER / 2
            middle = self.across(value)
            if middle - half < end + _GAP:
                return False
            end = middle + half
        return True

    def headings(self) -> Iterator[Markup]:
        """Yield the names that are above their rows; lines that cross them don't reach them."""
        if not self._names_are_above:
            return
        halo = stroked("paper", 4)
        for row, name in enumerate(self.y.names):
            short = shortened(name, _LONGEST_ABOVE)
            full = "" if short == name else name
            top = self.down(row) - _ROW / 2 - 3
            yield element("text", short, x=self.left, y=top, **halo)
            yield words(self.left, top, short, "start", "ink", full)


def _are_above(names: Sequence[str]) -> bool:
    return any(len(name) > _LONGEST_BESIDE for name in names)


def _pitch(names: Sequence[str]) -> float:
    """Return the distance of rows."""
    return _ROW + _NAME if _are_above(names) else _ROW


def _grid_line(paths: Iterable[str]) -> Markup:
    """Return all lines of the grid in a direction as one path; nothing without any."""
    path = "".join(paths)
    return element("path", d=path, **stroked("grid", 1)) if path else Markup()


class LegendEntry(NamedTuple):
    """A name, and the paint of its line."""

    name: str
    paint: str
    dashed: bool


def draw_legend(
    entries: Iterable[LegendEntry], top: float, width: float = WIDTH
) -> tuple[Markup, float]:
    """Return names beside samples of their lines, and the height of the rows of ``width``.

    The first row is at ``top``.
    """
    drawn = Markup()
    left = _LEGEND_LEFT
    place = top
    for entry in entries:
        name = shortened(entry.name, _LONGEST_NAME)
        length = _SAMPLE + 4 * _SAMPLE_GAP + len(name) * CHARACTER
        if left > _LEGEND_LEFT and left + length > width:
            left = _LEGEND_LEFT
            place += _LEGEND_ROW
        path = f"{path_from(left, place)}h{number(_SAMPLE)}"
        dashes = "5 4" if entry.dashed else None
        drawn += element("path", d=path, stroke_dasharray=dashes, **stroked(entry.paint, 3))
        drawn += words(left + _SAMPLE + _SAMPLE_GAP, place + 4, name, "start", "ink")
        left += length
    return drawn, place - top + _LEGEND_ROW if drawn else 0.0


@dataclass
class Plot:
    """A chart with axes ``x`` and ``y``, to which marks are added one by one.

    ``label`` says in words what it shows, for those who can't see it. Marks are in the units of the
    axes; ``title`` is their tooltip, ``paint`` a name of ``drawing.PAINTS``.
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
            self.height = _TOP + _BOTTOM + _pitch(self.y.names) * len(self.y.names)

    @cached_property
    def _frame(self) -> Frame:
        return Frame(self.x, self.y, self.height)

    def line(self, points: Iterable[Point], paint: str, title: str = "") -> None:
        """Add a line through points."""
        path = path_of(map(self._frame.place, points))
        self._stroke(path, paint, _MEDIUM, title)

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
        self._stroke(f"{path}v18", paint, 3, title)

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
        """Add a dot on its interval, a line from left to right with a tick at each end.

        An end beyond the axis is the tip of an arrow.
        """
        left, right = map(self._frame.across, x)
        middle = self._frame.down(row)
        path = f"{path_from(left, middle)}H{number(right)}"
        for bound, end, inwards in ((x[0], left, _ARROW), (x[1], right, -_ARROW)):
            if self.x.scale.holds(bound):
                path += f"{path_from(end, middle - 4)}v8"
            else:
                path += f"{path_from(end + inwards, middle - 4)}l{-inwards:g} 4l{inwards:g} 4"
        line = element("path", d=path, **stroked(paint, _MEDIUM))
        circle = element("circle", cx=self._frame.across(value), cy=middle, r=4, **filled(paint))
        self._marks.append(element("g", line, circle, title=title))

    def whisker(self, x: float, y: Span, paint: str, title: str) -> None:
        """Add a vertical line from one value to another, with a tick at each end.

        An end beyond the axis is the tip of an arrow.
        """
        low, high = map(self._frame.down, y)
        middle = self._frame.across(x)
        path = f"{path_from(middle, low)}V{number(high)}"
        for bound, end, inwards in ((y[0], low, -_ARROW), (y[1], high, _ARROW)):
            if self.y.scale.holds(bound):
                path += f"{path_from(middle - 4, end)}h8"
            else:
                path += f"{path_from(middle - 4, end + inwards)}l4 {-inwards:g}l4 {inwards:g}"
        self._stroke(path, paint, _MEDIUM, title)

    def vertical(
        self, x: float, paint: str, text: str = "", dashed: bool = True, title: str = ""
    ) -> None:
        """Add a line across the chart at a value of ``x``, with a text at its foot."""
        frame = self._frame
        self._stroke(frame.column(x), paint, _ACROSS, title or text, dashed)
        left = frame.across(x)
        foot = frame.bottom - 8
        length = len(text) * CHARACTER
        label = words(left + 5, foot, text, "start", paint)
        if left + length > frame.right:
            label = words(left - 5, foot, text, "end", paint)
        self._labels.append(label)

    def horizontal(self, y: float, paint: str, text: str = "", dashed: bool = True) -> None:
        """Add a line across the chart at a value of ``y``, with a text in the legend."""
        self._stroke(self._frame.row(y), paint, _ACROSS, text, dashed)
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
        legend, height = draw_legend(self._entries, self.height + 6)
        parts = [*frame.grid(), *self._marks, *frame.headings(), *self._labels, legend]
        return picture(self.label, self.height + height, parts)

    def _stroke(
        self, path: str, paint: str, width: float, title: str, dashed: bool = False
    ) -> None:
        """Add a path, unless it is empty."""
        if path:
            dashes = "4 3" if dashed else None
            pen = stroked(paint, width)
            self._marks.append(element("path", d=path, title=title, stroke_dasharray=dashes, **pen))
