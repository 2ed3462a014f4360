"""Legends of charts: names beside samples of their lines, in rows below the chart."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from markupsafe import Markup

from pytest_mlms.core.text import shortened
from pytest_mlms.show.pages.paints import stroked
from pytest_mlms.show.pages.svg import CHARACTER, element, number, path_from, words

_ROW = 18.0  # height of a row
_LEFT = 8.0
_SAMPLE = 18.0  # length of a line's sample
_GAP = 5.0  # from the sample to the name
_LONGEST = 60  # characters of a name


class LegendEntry(NamedTuple):
    """A name, and the paint of its line."""

    name: str
    paint: str
    dashed: bool


class Placed(NamedTuple):
    """An entry with its place: where it begins, and its row from 0 on."""

    entry: LegendEntry
    left: float
    row: int


def place_entries(entries: Iterable[LegendEntry], width: float) -> Sequence[Placed]:
    """Return the entries side by side, in as many rows of ``width`` as they need."""
    placed = []
    left = _LEFT
    row = 0
    for entry in entries:
        length = _length(entry)
        if left > _LEFT and left + length > width:
            left = _LEFT
            row += 1
        placed.append(Placed(entry, left, row))
        left += length
    return placed


def height_of(placed: Sequence[Placed]) -> float:
    """Return the height of the rows of a legend."""
    if not placed:
        return 0.0
    return (placed[-1].row + 1) * _ROW


def _length(entry: LegendEntry) -> float:
    name = shortened(entry.name, _LONGEST)
    return _SAMPLE + 4 * _GAP + len(name) * CHARACTER


def draw_legend(placed: Iterable[Placed], top: float) -> Markup:
    """Return the entries as SVG, the first row at ``top``."""
    parts = [_draw(each, top + each.row * _ROW) for each in placed]
    return Markup().join(parts)


def _draw(placed: Placed, top: float) -> Markup:
    entry = placed.entry
    path = f"{path_from(placed.left, top)}h{number(_SAMPLE)}"
    dashes = "5 4" if entry.dashed else None
    sample = element("path", d=path, stroke_dasharray=dashes, **stroked(entry.paint, 3))
    name = shortened(entry.name, _LONGEST)
    return sample + words(placed.left + _SAMPLE + _GAP, top + 4, name, "start", "ink")
