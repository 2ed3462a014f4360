"""Markdown that GitHub shows as meant, and that reads well as plain text.

Foreign text stands in code spans and code blocks, where no character has a meaning: neither markup,
nor mentions of people, nor numbers of issues.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from pytest_mlms.core.text import columns_of, shortened, visible

_LONGEST = 300  # characters of a code span
_TICKS = re.compile("`+")


def code(text: str) -> str:
    """Return a text as a code span in one line; "" for an empty one."""
    line = " ".join(visible(shortened(text, _LONGEST)).split())
    if not line:
        return ""
    if line.startswith("`") or line.endswith("`"):
        line = f" {line} "
    fence = "`" * (_longest_run(line) + 1)
    return f"{fence}{line}{fence}"


def code_block(lines: Iterable[str], language: str = "") -> str:
    """Return lines as a fenced block."""
    text = "\n".join(visible(line) for line in lines)
    fence = "`" * max(3, _longest_run(text) + 1)
    return f"{fence}{language}\n{text}\n{fence}\n"


def _longest_run(text: str) -> int:
    """Return the length of the longest row of backticks in a text."""
    lengths = [len(run) for run in _TICKS.findall(text)]
    return max(lengths, default=0)


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table whose columns are as wide as their cells; "" without rows.

    Cells are Markdown of one line each.
    """
    # A table ends a cell at each bar, also in a code span, and after a backslash all the same.
    body = [[text.replace("\\|", "\\ |").replace("|", "\\|") for text in row] for row in rows]
    if not body:
        return ""
    columns = zip(titles, *body, strict=True)
    widths = [max(3, *map(columns_of, column)) for column in columns]
    rule = ["-" * width for width in widths]
    lines = []
    for row in (titles, rule, *body):
        cells = [
            cell + " " * (width - columns_of(cell)) for cell, width in zip(row, widths, strict=True)
        ]
        lines.append(f"| {' | '.join(cells)} |\n")
    return "".join(lines)


def folded(title: str, body: str) -> str:
    """Return Markdown that opens by a click; the title is text of ours, as HTML would be read."""
    return f"<details><summary>{title}</summary>\n\n{body}\n</details>\n"
