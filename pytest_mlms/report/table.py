"""Tables as lines of text: cells that are too long are folded to a width, none is cut off.

Neither rich nor tabulate does this: the lines of each row must stay apart, to be coloured by its
verdict, and the columns give way in an order, which takes most of the code below with either.
"""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Sequence

__all__ = ["KEEP", "format_table"]

KEEP = "\u00a0"
"""A space at which no cell is folded."""

_GAP = "  "
_NARROWEST = 8  # characters of a text column whose words are broken


def format_table(
    header: Sequence[str], rows: Sequence[Sequence[str]], width: int, left: int
) -> list[list[str]]:
    """Return the lines of the header, and of each row.

    The first ``left`` columns are text, the others numbers. A table that is wider than ``width``
    characters is folded: first the widest text columns between words, then those of numbers, and
    last text columns within words.
    """
    cells = [header, *rows]
    columns = list(zip(*cells, strict=True))
    widths = [max(len(cell) for cell in column) for column in columns]
    words = [max(_longest_word(cell) for cell in column) for column in columns]
    text = range(left)
    numbers = range(left, len(header))
    _narrow(widths, text, words, width)
    _narrow(widths, numbers, words, width)
    _narrow(widths, text, [_NARROWEST] * left, width)
    return [_fold(row, widths, left) for row in cells]


def _longest_word(cell: str) -> int:
    words = textwrap.wrap(cell, 1, break_long_words=False)
    return max((len(word) for word in words), default=0)


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


def _fold(row: Sequence[str], widths: Sequence[int], left: int) -> list[str]:
    """Return the lines of a row."""
    columns = []
    for cell, width in zip(row, widths, strict=True):
        columns.append(textwrap.wrap(cell, width) or [""])
    lines = []
    for parts in itertools.zip_longest(*columns, fillvalue=""):
        line = _GAP.join(_aligned(parts, widths, left))
        lines.append(line.rstrip().replace(KEEP, " "))
    return lines


def _aligned(parts: Sequence[str], widths: Sequence[int], left: int) -> list[str]:
    """Return the parts of cells at their widths: text to the left, numbers to the right."""
    text = [part.ljust(width) for part, width in zip(parts[:left], widths, strict=False)]
    numbers = [part.rjust(width) for part, width in zip(parts[left:], widths[left:], strict=True)]
    return text + numbers
