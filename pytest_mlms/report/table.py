"""Tables as lines of text: cells that are too long are folded to a width, none is cut off.

Neither rich nor tabulate does this: the lines of each row must stay apart, to be coloured by its
verdict, and the columns give way in an order, which takes most of the code below with either.
"""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Iterable, Sequence

__all__ = ["KEEP", "format_table"]

Row = Sequence[str]

KEEP = "\u00a0"
"""A space at which no cell is folded."""

_GAP = "  "
_NARROWEST = 8  # characters of a text column whose words are broken


def format_table(header: Row, rows: Sequence[Row], width: int, left: int) -> list[list[str]]:
    """Return the lines of the header, and of each row.

    The first ``left`` columns are text, the others numbers. A table that is wider than ``width``
    characters is folded: first the widest text columns between words, then those of numbers, and
    last text columns within words.
    """
    cells = [header, *rows]
    widths = _column_widths(cells, width, left)
    return [_fold(row, widths, left) for row in cells]


def _column_widths(cells: Sequence[Row], width: int, left: int) -> list[int]:
    widths = []
    words = []
    for column in zip(*cells, strict=True):
        widths.append(_longest(column))
        words.append(_longest(_words(column)))
    text = range(left)
    numbers = range(left, len(widths))
    _narrow(widths, text, words, width)
    _narrow(widths, numbers, words, width)
    narrowest = [_NARROWEST] * left
    _narrow(widths, text, narrowest, width)
    return widths


def _longest(texts: Iterable[str]) -> int:
    """Return the length of the longest text, at least 1."""
    lengths = map(len, texts)
    return max(lengths, default=1) or 1


def _words(cells: Iterable[str]) -> list[str]:
    """Return what cells can be folded to without breaking words."""
    words = []
    for cell in cells:
        words += textwrap.wrap(cell, 1, break_long_words=False)
    return words


def _narrow(widths: list[int], columns: Sequence[int], least: Sequence[int], width: int) -> None:
    """Narrow the widest of ``columns`` again and again until the table has ``width``.

    Changes ``widths``. No column gets narrower than its ``least``.
    """
    gaps = len(_GAP) * (len(widths) - 1)
    while sum(widths) + gaps > width:
        candidates = [column for column in columns if widths[column] > least[column]]
        if not candidates:
            return
        widest = max(candidates, key=widths.__getitem__)
        widths[widest] -= 1


def _fold(row: Row, widths: Sequence[int], left: int) -> list[str]:
    """Return the lines of a row."""
    columns = []
    for cell, width in zip(row, widths, strict=True):
        columns.append(textwrap.wrap(cell, width))
    lines = []
    for parts in itertools.zip_longest(*columns, fillvalue=""):
        line = _join(parts, widths, left)
        lines.append(line.replace(KEEP, " "))
    return lines or [""]


def _join(parts: Row, widths: Sequence[int], left: int) -> str:
    """Return a line of parts of cells: text to the left, numbers to the right."""
    aligned = []
    for column, part in enumerate(parts):
        width = widths[column]
        if column < left:
            aligned.append(part.ljust(width))
        else:
            aligned.append(part.rjust(width))
    return _GAP.join(aligned).rstrip()
