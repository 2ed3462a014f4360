"""Tables of text (CSV, TSV) as people have them: their separator, header, and numbers."""

from __future__ import annotations

import contextlib
import csv
import io
import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.files import read_regular

TABLE_SUFFIXES = (".csv", ".tsv", ".tab", ".txt", ".data")

_MOST_BYTES = 256 << 20
_SEPARATORS = "\t;|,"
"""Likeliest first: a comma may also be of a number or a text."""
_TRIED = 1 << 16  # characters, for the separator
_MARKS = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16", b"\xef\xbb\xbf": "utf-8-sig"}
_SEPARATOR_LINE = re.compile(r"sep=(.)\r?\n", re.IGNORECASE)  # of Excel
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_DECIMAL_COMMA = re.compile(r"[+-]?\d*,?\d+([eE][+-]?\d+)?")
_DATE = re.compile(
    r"(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{4}[-/]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4})([T ].*)?"
)
_TRUTHS = {"true": 1, "false": 0}
_MISSING = frozenset(
    {"", "#N/A", "#N/A N/A", "#NA", "<NA>", "?", "N/A", "NA", "NULL", "None", "n/a", "null"}
    | {"-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "NaN", "nan"}
)
"""Cells that stand for no value: those of pandas, and that of the UCI repository."""
_LEAST_SHARE = 0.5  # of numbers in each line of a table with blanks between its cells
_LEAST_COUNTED = 3  # columns that are called 0, 1, 2 …
_LEAST_ASCENDING = 5  # columns that are called 400, 410 … beside texts
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2},\d{3}")
_NO_NAME = re.compile(r"[+-]?inf(inity)?|\W+", re.IGNORECASE)


@dataclass(frozen=True)
class ColumnsData:
    """A table with a row for each input, or for each time of a series.

    ``columns`` has the cells of each column by its name, without blanks around them; a table
    without a header has the names "1", "2", and so on. ``lines`` are those of the rows in the
    file.
    """

    path: Path
    columns: Mapping[str, Sequence[str]]
    lines: Sequence[int]
    has_header: bool = True

    @property
    def names(self) -> list[str]:
        """The names of the columns, in their order."""
        return list(self.columns)

    def without(self, names: Sequence[str]) -> ColumnsData:
        """Return the table without some columns."""
        kept = {name: cells for name, cells in self.columns.items() if name not in names}
        return replace(self, columns=kept)

    def rows(self, numbers: Sequence[int]) -> ColumnsData:
        """Return the table of some rows, by their numbers from 0."""
        kept = {name: [cells[row] for row in numbers] for name, cells in self.columns.items()}
        return replace(self, columns=kept, lines=[self.lines[row] for row in numbers])

    def shown(self, name: str) -> str:
        """Return what a message calls a column."""
        return f"column {name!r}" if self.has_header else f"column {name}"

    def numbers(self, name: str, advice: str, role: str = "") -> list[float]:
        """Return the numbers of a column, NaN where it has none; True is 1 and False 0.

        Raises MlmsError with the line of another cell, the ``role`` of the column and the advice.
        """
        values = []
        for cell, line in zip(self.columns[name], self.lines, strict=True):
            try:
                values.append(as_number(cell))
            except ValueError as error:
                problem = f"{self.path}:{line}: {self.shown(name)}{role}: {error}"
                raise MlmsError(f"{problem}{advice}") from error
        return values

    def kind(self, name: str) -> str:
        """Return what a column has: numbers, truths, dates, texts, or nothing.

        A column of which a cell is no number has texts.
        """
        cells = [cell for cell in self.columns[name] if not is_missing(cell)]
        if not cells:
            return "nothing"
        for kind, fits in (("numbers", is_number), ("truths", _is_truth), ("dates", _is_date)):
            if all(map(fits, cells)):
                return kind
        return "texts"


def counted(columns: int) -> str:
    """Return a number of columns as a message has it."""
    return "1 column" if columns == 1 else f"{columns} columns"


def is_missing(cell: str) -> bool:
    """Return whether a cell stands for no value."""
    return cell in _MISSING


def is_number(cell: str) -> bool:
    """Return whether a cell is a finite number, as tables have it."""
    return _NUMBER.fullmatch(cell) is not None and math.isfinite(float(cell))


def as_number(cell: str) -> float:
    """Return the number of a cell, NaN where it stands for no value; True is 1 and False 0.

    Raises ValueError for another cell.
    """
    if is_missing(cell):
        return float("nan")
    if cell.lower() in _TRUTHS:
        return _TRUTHS[cell.lower()]
    if not is_number(cell):
        is_large = _NUMBER.fullmatch(cell) is not None
        raise ValueError(f"{cell!r} is {'too large' if is_large else 'no number'}")
    return float(cell)


def _is_truth(cell: str) -> bool:
    return cell.lower() in _TRUTHS


def _is_date(cell: str) -> bool:
    return _DATE.fullmatch(cell) is not None


def read_table(path: Path) -> ColumnsData:
    """Return the table in a file. Raises MlmsError, which names the line."""
    text = _text(path)
    said = _SEPARATOR_LINE.match(text)
    if said:
        text = "\n" + text[said.end() :]
    separator = said[1] if said else _separator(text)
    rows, lines = _rows(text, separator, path)
    if not rows:
        raise MlmsError(f"{path} has no rows; write a row for each input")
    has_counts = _counts_itself(rows)
    if has_counts:
        rows, lines = rows[1:], lines[1:]
    else:
        rows = _with_a_name_for_all(rows)
    _check_widths(rows, lines, separator, path)
    if separator in (";", "\t"):
        rows = _with_decimal_points(rows, lines, path)
    has_header = not has_counts and _names_columns(rows[0], rows[1:])
    if not has_header:
        names = [str(place + 1) for place in range(len(rows[0]))]
        return ColumnsData(path, _columns(names, rows, path), lines, has_header)
    if len(rows) == 1:
        raise MlmsError(f"{path} has names of columns and no rows; write a row for each input")
    _check_names(rows[0], lines[0], path)
    return ColumnsData(path, _columns(rows[0], rows[1:], path), lines[1:])


def _with_a_name_for_all(rows: list[list[str]]) -> list[list[str]]:
    """Return rows whose first one has as many cells as the others, where it had one less.

    R leaves out the name of the rows' names, and others write a separator at the end of each row.
    """
    if len(rows) < 2 or len(rows[0]) != len(rows[1]) - 1 or not _names_columns(rows[0], rows[1:]):
        return rows
    width = len(rows[1])
    if all(len(row) == width and not row[-1] for row in rows[1:]):
        return [rows[0], *(row[:-1] for row in rows[1:])]
    return [["", *rows[0]], *rows[1:]]


def _columns(
    names: Sequence[str], rows: Sequence[Sequence[str]], path: Path
) -> dict[str, Sequence[str]]:
    """Return the cells of each column, without an empty one that a separator at the end makes.

    Raises MlmsError for two columns of one name.
    """
    columns: dict[str, Sequence[str]] = {}
    for place, name in enumerate(names):
        cells = [row[place] for row in rows]
        known = name or ("" if place == 0 else f"column {place + 1}")
        if known in columns:
            raise MlmsError(f"{path} has two columns {known!r}; rename one of them")
        if name or any(cells):
            columns[known] = cells
    return columns


def _text(path: Path) -> str:
    """Return the text of a file: UTF-8, or UTF-16 with its mark. Raises MlmsError."""
    try:
        data = read_regular(path, _MOST_BYTES)
    except OSError as error:
        advice = f"name a part of it: head -n 100001 {path} > part.csv"
        raise MlmsError(f"{path} can't be read: {error.strerror}; {advice}") from error
    encodings = [name for mark, name in _MARKS.items() if data.startswith(mark)]
    encoding = encodings[0] if encodings else "utf-8"
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        advice = f"iconv -f WINDOWS-1252 -t UTF-8 {path} > data-utf8.csv, if Windows wrote it"
        raise MlmsError(f"{path}:{line}: is not UTF-8; save it as UTF-8: {advice}") from error
    if "\0" in text:
        raise MlmsError(f"{path} is no table of text; write it as a CSV")
    return text.removeprefix("\ufeff")


def _separator(text: str) -> str:
    """Return what separates the cells of a table, a blank for one without another separator.

    It is the one by which all rows but the first are equally long.
    """
    sample = text
    if len(text) > _TRIED:
        sample = text[: text.rindex("\n", 0, _TRIED) + 1] if "\n" in text[:_TRIED] else text
    longest = ",", 1
    for separator in _SEPARATORS:
        reader = csv.reader(
            io.StringIO(sample, newline=""), delimiter=separator, skipinitialspace=True
        )
        widths = [len(row) for row in _readable(reader) if any(row)]
        if sample is not text:
            widths = widths[:-1]  # it may end within quotes
        if not widths:
            continue
        width = min(widths[1:] or widths)
        if width > 1 and len(set(widths[1:])) <= 1 and widths[0] >= width - 1:
            return separator
        if max(widths) > longest[1]:
            longest = separator, max(widths)
    by_blanks = [line.split() for line in sample.split("\n")[1:] if line.strip()]
    shares = [sum(map(is_number, cells)) / len(cells) for cells in by_blanks]
    widths = [len(cells) for cells in by_blanks]
    is_blank = len(set(widths)) == 1 and widths[0] > 1 and min(shares) >= _LEAST_SHARE
    return " " if is_blank and longest[1] == 1 else longest[0]


def _readable(reader: Iterator[list[str]]) -> Iterator[list[str]]:
    """Yield the rows before the first that can't be read, which an error names later."""
    with contextlib.suppress(csv.Error):
        yield from reader


def _rows(text: str, separator: str, path: Path) -> tuple[list[list[str]], list[int]]:
    """Return the rows that have cells, and their lines. Raises MlmsError.

    A mark of a comment before the names of the columns is left out, as numpy writes it.
    """
    if separator == " ":
        split = [(line.split(), number) for number, line in enumerate(text.split("\n"), start=1)]
        return [cells for cells, _ in split if cells], [line for cells, line in split if cells]
    reader = csv.reader(
        io.StringIO(text, newline=""), delimiter=separator, skipinitialspace=True, strict=True
    )
    rows: list[list[str]] = []
    lines: list[int] = []
    line = 1
    try:
        for row in reader:
            cells = [cell.strip() for cell in row]
            if not rows and cells and cells[0].startswith("#"):
                cells[0] = cells[0].lstrip("# ")
            if any(cells):
                rows.append(cells)
                lines.append(line)
            line = reader.line_num + 1
    except csv.Error as error:
        advice = 'a quote within quotes is written twice: "a ""b"" c"'
        raise MlmsError(f"{path}:{line}: {error}; close its quotes; {advice}") from error
    return rows, lines


def _counts_itself(rows: Sequence[Sequence[str]]) -> bool:
    """Return whether the first line has the number of rows and of features, and then names.

    So do the tables that come with scikit-learn.
    """
    first = rows[0]
    if len(rows) < 2 or len(first) < 3:
        return False
    return list(first[:2]) == [str(len(rows) - 1), str(len(rows[1]) - 1)]


def _check_widths(
    rows: Sequence[Sequence[str]], lines: Sequence[int], separator: str, path: Path
) -> None:
    """Raise MlmsError for the first row of another length than the first one has."""
    width = len(rows[0])
    for row, line in zip(rows, lines, strict=True):
        if len(row) != width:
            problem = f"has {len(row)} cells, and line {lines[0]} {width}"
            advice = f"write as many, and a cell with {separator!r} in quotes"
            raise MlmsError(f"{path}:{line}: {problem}; {advice}")


def _with_decimal_points(
    rows: list[list[str]], lines: Sequence[int], path: Path
) -> list[list[str]]:
    """Return rows with a point in numbers, in columns of which all have a comma or neither.

    Raises MlmsError where the comma or a point may be one between thousands.
    """
    changed = []
    for place in range(len(rows[0])):
        cells = [row[place] for row in rows[1:] if not is_missing(row[place])]
        has_commas = any("," in cell for cell in cells)
        if has_commas and all(map(_DECIMAL_COMMA.fullmatch, cells)):
            changed.append(place)
    _check_decimals(rows, lines, changed, path)
    for row in rows:
        for place in changed:
            if _DECIMAL_COMMA.fullmatch(row[place]):
                row[place] = row[place].replace(",", ".")
    return rows


def _check_decimals(
    rows: Sequence[Sequence[str]], lines: Sequence[int], changed: Sequence[int], path: Path
) -> None:
    """Raise MlmsError for numbers of ``changed`` columns whose commas may not be decimal ones.

    They aren't clear beside numbers with points, and where all have three digits behind them.
    """
    commas = [
        (row[place], line)
        for row, line in zip(rows[1:], lines[1:], strict=True)
        for place in changed
        if "," in row[place]
    ]
    if not commas:
        return
    cell, line = commas[0]
    advice = "write numbers with a decimal point, and no sign between thousands"
    for place in range(len(rows[0])):
        cells = [row[place] for row in rows[1:]]
        pointed = [row for row, cell in enumerate(cells, start=1) if "." in cell]
        if pointed and all(is_number(cell) or is_missing(cell) for cell in cells):
            other = f"line {lines[pointed[0]]} {cells[pointed[0] - 1]}"
            problem = f"{path}:{line}: has {cell}, and {other}, of which one is between thousands"
            raise MlmsError(f"{problem}; {advice}")
    if all(_THOUSANDS.fullmatch(cell) for cell, _ in commas):
        problem = (
            f"{path}:{line}: {cell} may be {cell.replace(',', '.')} or {cell.replace(',', '')}"
        )
        raise MlmsError(f"{problem}; {advice}")


def _check_names(first: Sequence[str], line: int, path: Path) -> None:
    """Raise MlmsError for a first line that may be one of values, as most of it are numbers."""
    names = [cell for cell in first if cell and not is_number(cell)]
    numbers = [float(cell) for cell in first if is_number(cell)]
    ascend = all(one < next_one for one, next_one in itertools.pairwise(numbers))
    if len(numbers) > len(names) and not ascend:
        problem = (
            f"{path}:{line}: has the numbers of a row, and {names[0]!r}, where others have one"
        )
        raise MlmsError(f"{problem}; correct it, or write a line with the names of all columns")


def _names_columns(first: Sequence[str], rest: Sequence[Sequence[str]]) -> bool:
    """Return whether a row has names of columns.

    One of its cells is no number where all below are numbers, or it counts the columns, as pandas
    does where they have no names. Where all columns are texts, no cell is in its column again.
    """
    counts = [cell for cell in first if is_number(cell)]
    if len(counts) >= _LEAST_COUNTED and counts == [str(place) for place in range(len(counts))]:
        others = [place for place, cell in enumerate(first) if not is_number(cell)]
        return all(first[place] != row[place] for row in rest for place in others)
    if len(counts) >= _LEAST_ASCENDING and _ascend_beside_texts(first, rest):
        return True
    has_numbers = False
    for place, cell in enumerate(first):
        cells = [row[place] for row in rest if len(row) > place and not is_missing(row[place])]
        if cells and all(is_number(each) or _is_truth(each) or _is_date(each) for each in cells):
            has_numbers = True
            is_value = is_number(cell) or is_missing(cell) or _is_truth(cell)
            if not is_value and not _NO_NAME.fullmatch(cell):
                return not _is_date(cell)
    if has_numbers or len(set(first)) < len(first):
        return False
    return all(cell not in {row[place] for row in rest} for place, cell in enumerate(first))


def _ascend_beside_texts(first: Sequence[str], rest: Sequence[Sequence[str]]) -> bool:
    """Return whether a row has whole numbers that ascend, as names of wavelengths or years do.

    Beside them are texts, none of which is in its column again.
    """
    counts = [float(cell) for cell in first if is_number(cell) and float(cell).is_integer()]
    others = [place for place, cell in enumerate(first) if not is_number(cell)]
    if len(counts) + len(others) < len(first) or not others:
        return False
    ascend = all(one < next_one for one, next_one in itertools.pairwise(counts))
    return ascend and all(first[place] != row[place] for row in rest for place in others)
