"""Tables as lines of text that fit a width: no cell is cut off, and no name is broken.

Neither rich nor tabulate does this: the lines of each row must stay apart, to be coloured by its
verdict, and the columns give way in an order, which takes most of the code below with either.
"""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Iterable, Sequence

from pytest_mlms.core.text import visible

Row = Sequence[str]

KEEP = "\u00a0"
"""A space at which no cell is folded."""

_GAP = "  "
_INDENT = "  "
"""Before the numbers of a row that stand below its names."""


def format_table(header: Row, rows: Sequence[Row], width: int, left: int) -> list[list[str]]:
    """Return the lines of the header, and of each row.

    The first ``left`` columns are text, the others numbers. In a table that is wider than ``width``
    characters, the numbers of each row stand below its names. A table of text or of numbers alone
    is folded between words, and text in the end within them.
    """
    cells = [[visible(cell) for cell in row] for row in (header, *rows)]
    widths = _widths(cells)
    if 0 < left < len(widths) and _total(widths) > width:
        names = _lines_of_names([row[:left] for row in cells], width)
        numbers = _lines_of_numbers([row[left:] for row in cells], width - len(_INDENT))
        lines = []
        for above, below in zip(names, numbers, strict=True):
            lines.append([*above, *[f"{_INDENT}{line}" for line in below]])
        return lines
    _narrow(widths, _longest_words(cells), width)
    if left == len(widths):
        _narrow(widths, [1] * left, width)
    return [_fold(row, widths, left) for row in cells]


def _widths(cells: Sequence[Row]) -> list[int]:
    """Return the length of the longest cell of each column, at least 1."""
    return [_longest(column) for column in zip(*cells, strict=True)]


def _longest(texts: Iterable[str]) -> int:
    """Return the length of the longest text, at least 1."""
    return max(map(len, texts), default=1) or 1


def _longest_words(cells: Sequence[Row]) -> list[int]:
    """Return for each column the length of its longest word, which is not broken."""
    lengths = []
    for column in zip(*cells, strict=True):
        words: list[str] = []
        for cell in column:
            words += textwrap.wrap(cell, 1, break_long_words=False)
        lengths.append(_longest(words))
    return lengths


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(_GAP) * (len(widths) - 1)


def _lines_of_names(cells: Sequence[Row], width: int) -> list[list[str]]:
    """Return the lines of text columns: side by side, or below each other where they are wide."""
    widths = _widths(cells)
    if _total(widths) <= width:
        return [_fold(row, widths, len(widths)) for row in cells]
    lines = []
    for row in cells:
        of_row: list[str] = []
        for cell in row:
            of_row += textwrap.wrap(cell, width)
        lines.append(of_row)
    return lines


def _lines_of_numbers(cells: Sequence[Row], width: int) -> list[list[str]]:
    """Return the lines of columns of numbers, which are folded between words where need be."""
    widths = _widths(cells)
    _narrow(widths, _longest_words(cells), width)
    return [_fold(row, widths, left=0) for row in cells]


def _narrow(widths: list[int], least: Sequence[int], width: int) -> None:
    """Narrow the widest column again and again until the table has ``width``.

    Changes ``widths``. No column gets narrower than its ``least``.
    """
    while _total(widths) > width:
        candidates = [column for column in range(len(widths)) if widths[column] > least[column]]
        if not candidates:
            return
        widest = max(candidates, key=widths.__getitem__)
        widths[widest] -= 1


def _fold(row: Row, widths: Sequence[int], left: int) -> list[str]:
    """Return the lines of a row, text to the left and numbers to the right."""
    columns = [textwrap.wrap(cell, width) for cell, width in zip(row, widths, strict=True)]
    lines = []
    for parts in itertools.zip_longest(*columns, fillvalue=""):
        aligned = []
        for column, part in enumerate(parts):
            is_text = column < left
            aligned.append(part.ljust(widths[column]) if is_text else part.rjust(widths[column]))
        lines.append(_GAP.join(aligned).rstrip().replace(KEEP, " "))
    return lines or [""]
