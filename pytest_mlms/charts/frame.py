"""Frame of a chart: the place of both axes in a picture, and their grid with its texts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from markupsafe import Markup

from pytest_mlms.charts.axes import Axis
from pytest_mlms.charts.paints import stroked
from pytest_mlms.charts.picture import WIDTH
from pytest_mlms.charts.svg import CHARACTER, element, number, path_from, words
from pytest_mlms.text import shortened

__all__ = ["Frame", "Point", "height_of_rows"]

_TOP = 14.0
_BOTTOM = 40.0
_RIGHT = 14.0
_MARGIN = 12.0  # of the texts of the vertical axis
_WIDEST_TEXTS = 0.42  # of the picture, for the texts of the vertical axis
_LONGEST_NAME = 26  # characters of a row's name; the rest is in the tooltip
_TITLE = 12.0  # height of the title of the vertical axis, above the chart
_ROW = 22.0  # height of a row
_COLUMN = 70.0  # least distance of ticks from left to right
_LINE = 36.0  # least distance of ticks from top to bottom

Point: TypeAlias = tuple[float, float]
"""A value of ``x`` and one of ``y``, or their pixels."""


def height_of_rows(count: int) -> float:
    """Return the height of a chart with so many rows."""
    return _TOP + _BOTTOM + _ROW * count


@dataclass(frozen=True)
class Frame:
    """Two axes within a picture of this height; places are in its units."""

    x: Axis
    y: Axis
    height: float

    @cached_property
    def left(self) -> float:
        """The left end, beside the names or numbers of the vertical axis."""
        texts: Sequence[str] = [_short(name) for name in self.y.names]
        if not texts:
            texts = [self.y.text(value) for value in self._heights]
        longest = max(map(len, texts), default=0)
        return min(_MARGIN + longest * CHARACTER, WIDTH * _WIDEST_TEXTS)

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

    def across(self, x: float) -> float:
        """Return a value of ``x`` in pixels from the left."""
        share = self.x.scale.share(x)
        return self.left + share * (self.right - self.left)

    def down(self, y: float) -> float:
        """Return a value of ``y`` in pixels from the top; rows are counted from there."""
        share = self.y.scale.share(y)
        length = share * (self.bottom - self.top)
        if self.y.names:
            return self.top + length
        return self.bottom - length

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
        yield from self._columns()
        if self.y.names:
            yield from self._names()
        else:
            yield from self._lines()

    def _columns(self) -> Iterator[Markup]:
        """Yield the lines, texts and title of the horizontal axis."""
        count = int((self.right - self.left) / _COLUMN)
        for value in self.x.ticks_of(count):
            yield element("path", d=self.column(value), **stroked("grid", 1))
            text = self.x.text(value)
            farthest = WIDTH - 2 - len(text) * CHARACTER / 2
            left = min(self.across(value), farthest)
            yield words(left, self.bottom + 15, text, "middle", "muted")
        middle = (self.left + self.right) / 2
        yield words(middle, self.height - 6, self.x.title, "middle", "ink")

    def _names(self) -> Iterator[Markup]:
        """Yield the name of each row."""
        left = self.left - 6
        for row, name in enumerate(self.y.names):
            top = self.down(row) + 4
            short = _short(name)
            full = "" if short == name else name
            yield words(left, top, short, "end", "ink", full)

    def _lines(self) -> Iterator[Markup]:
        """Yield the lines, texts and title of a vertical axis of numbers."""
        left = self.left - 5
        for value in self._heights:
            yield element("path", d=self.row(value), **stroked("grid", 1))
            top = self.down(value) + 4
            yield words(left, top, self.y.text(value), "end", "muted")
        yield words(2, _TOP - 2, self.y.title, "start", "ink")

    @cached_property
    def _heights(self) -> Sequence[float]:
        """The ticks of a vertical axis of numbers."""
        most = int((self.height - _TOP - _BOTTOM) / _LINE)
        return self.y.ticks_of(most)


def _short(name: str) -> str:
    return shortened(name, _LONGEST_NAME)
