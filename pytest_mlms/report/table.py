"""A table as lines of text that fit a width: cells that are too long fold, nothing is cut off."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

__all__ = ["format_table"]

_GAP = "  "
_NARROWEST = 8


def format_table(header: Sequence[str], rows: Sequence[Sequence[str]], width: int, left: int) -> list[list[str]]:
    """Return the lines of the header and of each row; the first ``left`` columns are text, the others numbers.

    Where the table is wider than ``width``, the widest text columns give way.
    """
    cells = [header, *rows]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    while sum(widths) + len(_GAP) * (len(widths) - 1) > width:
        widest = max(range(left), key=widths.__getitem__)
        if widths[widest] <= _NARROWEST:
            break
        widths[widest] -= 1
    return [_lines(row, widths, left) for row in cells]


def _lines(row: Sequence[str], widths: Sequence[int], left: int) -> list[str]:
    folded = [textwrap.wrap(cell, size) or [""] for cell, size in zip(row, widths, strict=True)]
    lines = []
    for number in range(max(map(len, folded))):
        cells = [part[number] if number < len(part) else "" for part in folded]
        aligned = [c.ljust(w) if i < left else c.rjust(w) for i, (c, w) in enumerate(zip(cells, widths, strict=True))]
        lines.append(_GAP.join(aligned).rstrip())
    return lines
