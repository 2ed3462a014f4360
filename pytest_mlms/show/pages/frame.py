"""Frame of a chart: the place of both axes in a picture, and their grid with its texts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from markupsafe import Markup

from pytest_mlms.core.text import shortened
from pytest_mlms.show.pages.axes import Axis
from pytest_mlms.show.pages.paints import stroked
from pytest_mlms.show.pages.picture import WIDTH
from pytest_mlms.show.pages.svg import CHARACTER, element, group_of_words, number, path_from, words

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

Point: TypeAlias = tuple[float, float]
"""A value of ``x`` and one of ``y``, or their pixels."""


def height_of_rows(names: Sequence[str]) -> float:
    """Return the height of a chart with a row for each name."""
    return _TOP + _BOTTOM + _pitch(names) * len(names)


def _are_above(names: Sequence[str]) -> bool:
    """Return whether names have lines of their own, as one is too long for a place beside them."""
    return any(len(name) > _LONGEST_BESIDE for name in names)


def _pitch(names: Sequence[str]) -> float:
    """Return the distance of rows."""
    return _ROW + _NAME if _are_above(names) else _ROW


@dataclass(frozen=True)
class Frame:
    """Two axes within a picture of this height; places are in its units."""

    x: Axis
    y: Axis
    height: float

    @cached_property
    def left(self) -> float:
        """The left end, beside the names or numbers of the vertical axis."""
        if _are_above(self.y.names):
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

    def across(self, x: float) -> float:
        """Return a value of ``x`` in pixels from the left."""
        share = self.x.scale.share(x)
        return self.left + share * (self.right - self.left)

    def down(self, y: float) -> float:
        """Return a value of ``y`` in pixels from the top; rows are counted from there."""
        if self.y.names:
            return self._row_down(y)
        share = self.y.scale.share(y)
        return self.bottom - share * (self.bottom - self.top)

    def _row_down(self, y: float) -> float:
        """Return a place in or near a row; the names of rows may need room between them."""
        row = min(max(round(y), 0), len(self.y.names) - 1)
        pitch = _pitch(self.y.names)
        foot = self.top + (row + 1) * pitch
        return foot + (y - row - 0.5) * _ROW

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
        if not self.y.names:
            yield from self._lines()
        elif not _are_above(self.y.names):
            left = self.left - 6
            texts = [(left, self.down(row) + 4, name) for row, name in enumerate(self.y.names)]
            yield group_of_words(texts, "end", "ink")

    def headings(self) -> Iterator[Markup]:
        """Yield the names that are above their rows; lines that cross them don't reach them."""
        if not _are_above(self.y.names):
            return
        halo = stroked("paper", 4)
        for row, name in enumerate(self.y.names):
            short = shortened(name, _LONGEST_ABOVE)
            full = "" if short == name else name
            top = self.down(row) - _ROW / 2 - 3
            yield element("text", short, x=self.left, y=top, **halo)
            yield words(self.left, top, short, "start", "ink", full)

    def _columns(self) -> Iterator[Markup]:
        """Yield the lines, texts and title of the horizontal axis."""
        places = self._places()
        texts = []
        for value in places:
            text = self.x.text(value)
            farthest = WIDTH - 2 - len(text) * CHARACTER / 2
            texts.append((min(self.across(value), farthest), self.bottom + 15, text))
        yield _grid_line(map(self.column, places))
        yield group_of_words(texts, "middle", "muted")
        middle = (self.left + self.right) / 2
        yield words(middle, self.height - 6, self.x.title, "middle", "ink")

    def _places(self) -> Sequence[float]:
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

    def _lines(self) -> Iterator[Markup]:
        """Yield the lines, texts and title of a vertical axis of numbers."""
        left = self.left - 5
        heights = self._heights
        texts = [(left, self.down(value) + 4, self.y.text(value)) for value in heights]
        yield _grid_line(map(self.row, heights))
        yield group_of_words(texts, "end", "muted")
        yield words(2, _TOP - 2, self.y.title, "start", "ink")

    @cached_property
    def _heights(self) -> Sequence[float]:
        """The ticks of a vertical axis of numbers."""
        most = int((self.height - _TOP - _BOTTOM) / _LINE)
        return self.y.ticks_of(most)


def _grid_line(paths: Iterable[str]) -> Markup:
    """Return all lines of the grid in a direction as one path; nothing without any."""
    path = "".join(paths)
    return element("path", d=path, **stroked("grid", 1)) if path else Markup()
