"""Tables as lines of text that fit a width: no cell is cut off, and no name is broken.

Neither rich nor tabulate does this: the lines of each row must stay apart, to be coloured by its
verdict, and the columns give way in an order, which takes most of the code below with either.
"""

from __future__ import annotations

import itertools
import re
import textwrap
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from pytest_mlms.core.text import beginning_of, columns_of, visible

Row = Sequence[str]

KEEP = "\u00a0"
"""A space at which no cell is folded."""

_GAP = "  "
_NAME = 20  # characters to which names are shortened before figures are left out
_INDENT = "  "
"""Before the numbers of a row that stand below its names."""


def format_table(header: Row, rows: Sequence[Row], width: int, left: int) -> list[list[str]]:
    """Return the lines of the header, and of each row.

    The first ``left`` columns are text, the others numbers. In a table that is wider than ``width``
    columns of the terminal, the numbers of each row stand below its names. A table of text or of
    numbers alone is folded between words, and text in the end within them.
    """
    cells = [[visible(cell) for cell in row] for row in (header, *rows)]
    widths = _widths(cells)
    if 0 < left < len(widths) and _total(widths) > width:
        numbers = [row[left:] for row in cells]
        of_names, of_numbers = widths[:left], widths[left:]
        _narrow(of_numbers, _longest_words(numbers), width - len(_INDENT))
        lines = []
        for row in cells:
            of_row: list[str] = []
            if _total(of_names) <= width:
                of_row = _fold(row[:left], of_names, left)
            else:
                for name in row[:left]:
                    of_row += _wrapped(name, width)
            below = _fold(row[left:], of_numbers, left=0)
            lines.append([*of_row, *(f"{_INDENT}{line}" for line in below)])
        return lines
    _narrow(widths, _longest_words(cells), width)
    if left == len(widths):
        _narrow(widths, [1] * left, width)
    return [_fold(row, widths, left) for row in cells]


class GiveWay(NamedTuple):
    """The columns and figures that a table too wide does without.

    ``spare`` are the columns that say least, and go first. ``later`` go after names are shortened,
    and then all others from the right on but ``main``, which is the first column of numbers if it
    isn't named.
    """

    spare: tuple[str, ...] = ()
    later: tuple[str, ...] = ()
    main: str = ""


RIGHT_FIRST = GiveWay()
"""Columns go from the right on."""


class Fitted(NamedTuple):
    """The line of a header, and that of each row.

    ``dropped`` are the titles of the columns that had no room. ``prefixes`` are
    lines that say what the names of a column begin with where they begin with "…". ``below`` has
    the main figure of each row where no line has room for it.
    """

    header: str
    rows: list[str]
    dropped: list[str]
    prefixes: list[str]
    below: list[str]


def fit_table(
    header: Row, rows: Sequence[Row], width: int, left: int, order: GiveWay = RIGHT_FIRST
) -> Fitted:
    """Return a table each of whose rows is a line of at most ``width`` characters.

    The first ``left`` columns are text, of which the first stays as it is, the others numbers.
    Names that are too wide lose what all of them begin with, then letters of their middle, as long
    as they stay apart. Where no line has room for the only column of numbers that is left, it has
    lines of its own: a figure that is cut off is another figure.
    """
    cells = [[visible(cell).replace(KEEP, " ") for cell in row] for row in (header, *rows)]
    titles = list(header)
    main = order.main if order.main in titles else "".join(titles[left : left + 1])
    later = [*order.later, *reversed(titles[left:])]
    dropped: list[str] = []

    def drop(columns: Iterable[str]) -> None:
        for title in columns:
            numbers = titles[left:]
            if _total(_widths(cells)) > width and title in numbers and title != main:
                at = left + numbers.index(title)  # a quantity may be called as a column of text
                del titles[at]
                for row in cells:
                    del row[at]
                dropped.append(title)

    drop(order.spare)
    prefixes = _take_prefixes(cells, width, left)
    _shorten_names(cells, width, left, _NAME)
    drop(later)
    before = [list(row) for row in cells]
    _shorten_names(cells, width, left, 1)
    below: list[str] = []
    if _total(_widths(cells)) > width:
        cells = before
        below = [f"{main} {row.pop()}" for row in cells if len(row) > left][1:]
        _shorten_names(cells, width, left, 1)
    widths = _widths(cells)
    lines = []
    for row in cells:
        aligned = []
        for column, cell in enumerate(row):
            is_text = column < left
            aligned.append(_aligned(cell, widths[column], is_text))
        line = _GAP.join(aligned).rstrip()
        lines.append(line if columns_of(line) <= width else f"{beginning_of(line, width - 1)}…")
    return Fitted(lines[0], lines[1:], dropped, prefixes, below)


def _take_prefixes(cells: list[list[str]], width: int, left: int) -> list[str]:
    """Write "…" for the words that all names of a column begin with, where the table is too wide.

    Changes ``cells``. Returns a line for each column, which says what was replaced.
    """
    prefixes = {}
    for column in range(1, left):
        names = [row[column] for row in cells[1:]]
        if len(set(names)) > 1:
            prefixes[column] = _common_words(min(names), max(names))
    taken: list[str] = []
    for column in sorted(prefixes, key=lambda column: len(prefixes[column]), reverse=True):
        prefix = prefixes[column]
        if len(prefix) > 1 and _total(_widths(cells)) > width:
            for row in cells[1:]:
                row[column] = f"…{row[column][len(prefix) :]}"
            taken.append(f"{cells[0][column]}: … stands for {prefix}")
    return taken


def _common_words(first: str, last: str) -> str:
    """Return the words before hyphens that both begin with: "here-cpu-"."""
    pairs = zip(first, last, strict=False)
    alike = itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)
    words, hyphen, _ = "".join(letter for letter, _ in alike).rpartition("-")
    return words + hyphen


def _shorten_names(cells: list[list[str]], width: int, left: int, least: int) -> None:
    """Shorten the cells of text until the table has ``width``, if that is possible.

    Changes ``cells``. No column gets narrower than ``least``, nor so narrow that two of its names
    would look alike; the first column has verdicts, which stay.
    """
    whole = [list(row) for row in cells]
    fixed: set[int] = set()
    while _total(_widths(cells)) > width:
        widths = _widths(cells)
        open_columns = [
            column for column in range(1, left) if widths[column] > least and column not in fixed
        ]
        if not open_columns:
            return
        widest = max(open_columns, key=widths.__getitem__)
        names = [row[widest] for row in whole]
        shorter = [_elided(name, widths[widest] - 1) for name in names]
        if len(set(shorter)) < len(set(names)):
            fixed.add(widest)
            continue
        for row, name in zip(cells, shorter, strict=True):
            row[widest] = name


def _elided(name: str, width: int) -> str:
    """Return a name without its middle; of what is kept two thirds are its end."""
    if columns_of(name) <= width:
        return name
    begin = beginning_of(name, (width - 1) // 3)
    end = beginning_of(name[::-1], width - 1 - columns_of(begin))[::-1]
    return f"{begin}…{end}"


def _aligned(text: str, width: int, is_text: bool) -> str:
    room = " " * (width - columns_of(text))
    return f"{text}{room}" if is_text else f"{room}{text}"


def _wrapped(text: str, width: int) -> list[str]:
    """Return a text in lines, broken between words, and within those that are too wide."""
    if columns_of(text) == len(text):
        return textwrap.wrap(text, width)
    lines: list[str] = []
    for word in re.findall(r"[^ \t\n]+", text):
        if lines and columns_of(f"{lines[-1]} {word}") <= width:
            lines[-1] += f" {word}"
            continue
        rest = word
        while rest:
            lines.append(beginning_of(rest, width) or rest[0])
            rest = rest[len(lines[-1]) :]
    return lines


def _widths(cells: Sequence[Row]) -> list[int]:
    """Return the columns that the widest cell of each column takes, at least 1."""
    return [_longest(column) for column in zip(*cells, strict=True)]


def _longest(texts: Iterable[str]) -> int:
    """Return the columns that the widest text takes, at least 1."""
    return max(map(columns_of, texts), default=1) or 1


def _longest_words(cells: Sequence[Row]) -> list[int]:
    """Return for each column the width of its widest word, which is not broken."""
    lengths = []
    for column in zip(*cells, strict=True):
        words: list[str] = []
        for cell in column:
            words += textwrap.wrap(cell, 1, break_long_words=False)
        lengths.append(_longest(words))
    return lengths


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(_GAP) * (len(widths) - 1)


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
    columns = [_wrapped(cell, width) for cell, width in zip(row, widths, strict=True)]
    lines = []
    for parts in itertools.zip_longest(*columns, fillvalue=""):
        aligned = []
        for column, part in enumerate(parts):
            is_text = column < left
            aligned.append(_aligned(part, widths[column], is_text))
        lines.append(_GAP.join(aligned).rstrip().replace(KEEP, " "))
    return lines or [""]
