"""A table as lines of text that fit a width: cells that are too long fold, nothing is cut off."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

__all__ = ["KEEP", "format_table"]

KEEP = "\u00a0"
"""A space at which no cell folds."""

_GAP = "  "
_NARROWEST = 8


def format_table(
    header: Sequence[str], rows: Sequence[Sequence[str]], width: int, left: int
) -> list[list[str]]:
    """Return the lines of the header and of each row; the first ``left`` columns are text, the
    others numbers.

    Where the table is wider than ``width``, the widest text columns give way, then the widest
    numbers, both at the ends of words; in the middle of words only text does.
    """
    cells = [header, *rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    words = [max(map(_longest_word, column)) for column in zip(*cells, strict=True)]
    text, numbers = range(left), range(left, len(header))
    for columns, least in ((text, words), (numbers, words), (text, [_NARROWEST] * left)):
        _narrow(widths, columns, least, width)
    return [_lines(row, widths, left) for row in cells]


def _longest_word(cell: str) -> int:
    return max(map(len, textwrap.wrap(cell, 1, break_long_words=False)), default=0)


def _narrow(widths: list[int], columns: Sequence[int], least: Sequence[int], width: int) -> None:
    """Take from the widest of ``columns``, down to their least, until the table is as wide as
    asked.
    """
    while sum(widths) + len(_GAP) * (len(widths) - 1) > width:
        wide = [column for column in columns if widths[column] > least[column]]
        if not wide:
            break
        widths[max(wide, key=widths.__getitem__)] -= 1


def _lines(row: Sequence[str], widths: Sequence[int], left: int) -> list[str]:
    folded = [textwrap.wrap(cell, size) or [""] for cell, size in zip(row, widths, strict=True)]
    lines = []
    for number in range(max(map(len, folded))):
        cells = [part[number] if number < len(part) else "" for part in folded]
        aligned = [
            c.ljust(w) if i < left else c.rjust(w)
            for i, (c, w) in enumerate(zip(cells, widths, strict=True))
        ]
        lines.append(_GAP.join(aligned).rstrip().replace(KEEP, " "))
    return lines
