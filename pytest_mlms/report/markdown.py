"""Markdown that GitHub shows as meant, and that reads well as plain text.

Foreign text stands in code spans and code blocks, where no character has a meaning: neither markup,
nor mentions of people, nor numbers of issues.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from pytest_mlms.text import shortened, visible

__all__ = ["code", "code_block", "folded", "table"]

_LONGEST = 300  # characters of a code span
_TICKS = re.compile("`+")


def code(text: str) -> str:
    """Return a text as a code span in one line; "" for an empty one."""
    line = " ".join(visible(shortened(text, _LONGEST)).split())
    if not line:
        return ""
    fence = "`" * (_longest_run(line) + 1)
    space = " " if line[0] == "`" or line[-1] == "`" else ""
    return f"{fence}{space}{line}{space}{fence}"


def code_block(lines: Iterable[str], language: str = "") -> str:
    """Return lines as a fenced block."""
    text = "\n".join(visible(line) for line in lines)
    fence = "`" * max(3, _longest_run(text) + 1)
    return f"{fence}{language}\n{text}\n{fence}\n"


def _longest_run(text: str) -> int:
    """Return the length of the longest row of backticks in a text."""
    return max(map(len, _TICKS.findall(text)), default=0)


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table whose columns are as wide as their cells; "" without rows.

    Cells are Markdown of one line each.
    """
    cells = [list(map(_cell, row)) for row in rows]
    if not cells:
        return ""
    lines = [list(titles), *cells]
    widths = [max(3, *map(len, column)) for column in zip(*lines, strict=True)]
    rule = ["-" * width for width in widths]
    return "".join(_row(line, widths) for line in (lines[0], rule, *cells))


def _cell(text: str) -> str:
    """Return a text for a cell; a table ends one at each bar, also in a code span.

    A bar after a backslash would count as one all the same, so that a blank is put between both.
    """
    return text.replace("\\|", "\\ |").replace("|", "\\|")


def _row(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = [cell.ljust(width) for cell, width in zip(cells, widths, strict=True)]
    return f"| {' | '.join(padded)} |\n"


def folded(title: str, body: str) -> str:
    """Return Markdown that opens by a click; the title is text of ours, as HTML would be read."""
    return f"<details><summary>{title}</summary>\n\n{body}\n</details>\n"
