"""Reading of labels.csv, the table of a dataset's elements and their labels."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from pytest_mlms.core.errors import DatasetError
from pytest_mlms.core.files import open_regular

LABELS_CSV = "labels.csv"
FILE = "file"
LABEL = "label"


class Table(NamedTuple):
    """The rows of a table that are not empty: a value for each input, and the label.

    ``inputs`` has the N values of each input by its name, ``labels`` has N texts, and ``lines`` the
    number of each row's line. ``sequences`` are the values of an optional column.
    """

    inputs: Mapping[str, list[str]]
    labels: list[str]
    lines: list[int]
    sequences: list[str] | None = None

    def place(self, index: int) -> str:
        """Return what a message calls a row."""
        return f"{LABELS_CSV}:{self.lines[index]}"


class TablePlaces(Sequence[str]):
    """The names of a table's elements in messages: the line of each, and its file if it has one."""

    def __init__(self, table: Table, files: Sequence[str] | None) -> None:
        self._table = table
        self._files = files

    def __len__(self) -> int:
        return len(self._table.lines)

    def __getitem__(self, index: Any) -> Any:
        place = self._table.place(index)
        return place if self._files is None else f"{place}: {self._files[index]}"


class _Row(NamedTuple):
    line: int
    values: Mapping[str, str]


def read_labels_csv(
    path: Path, inputs: Sequence[str], has_files: bool = True, sequence: str | None = None
) -> Table:
    """Return the rows of a table.

    Its first line names the columns: one for each input and 'label', or 'file' for the only input,
    where inputs may have files. ``sequence`` is a column that may be missing. A byte order mark,
    blanks around values, empty lines and further columns are accepted, but no cell without a
    column. Raises DatasetError, which names the line.
    """
    try:
        with _open_table(path) as file:
            reader = csv.DictReader(file, skipinitialspace=True, strict=True)
            names = _named(reader)
            found = sequence if sequence in names else None
            return _table(reader, _columns(names, inputs, has_files), found)
    except UnicodeDecodeError as error:
        raise DatasetError(f"{_undecodable(path)}; save it as UTF-8") from error
    except OSError as error:
        advice = "put a regular file there"
        raise DatasetError(f"{path.name} can't be read: {error.strerror}; {advice}") from error


def _open_table(path: Path) -> TextIO:
    return io.TextIOWrapper(open_regular(path), encoding="utf-8-sig", newline="")


def _undecodable(path: Path) -> str:
    """Return the first line of a file that is not UTF-8, and its first such byte."""
    before = 0
    with open_regular(path) as file:
        for number, line in enumerate(file, start=1):
            try:
                line.decode()
            except UnicodeDecodeError as error:
                return f"{path.name}:{number} is not UTF-8 (byte {before + error.start})"
            before += len(line)
    return f"{path.name} is not UTF-8"


def _named(reader: csv.DictReader[str]) -> list[str]:
    """Return the names of the columns, without blanks around them; raises DatasetError."""
    try:
        names = [name.strip() for name in reader.fieldnames or []]
    except csv.Error as error:
        raise _malformed(1, error) from error
    repeated = sorted({name for name in names if name and names.count(name) > 1})
    if repeated:
        problem = f"{LABELS_CSV}:1: there are several columns {', '.join(repeated)}"
        raise DatasetError(f"{problem}; leave all but one out")
    reader.fieldnames = names
    return names


def _malformed(line: int, error: csv.Error) -> DatasetError:
    """Return the error of a table's form, in the row that begins at a line."""
    advice = 'write a cell with a comma or a quote in quotes: "like ""this"", for one"'
    return DatasetError(f"{LABELS_CSV}:{line}: {error}; {advice}")


def _table(
    reader: csv.DictReader[str], column_of: Mapping[str, str], sequence: str | None
) -> Table:
    sequences: list[str] = []
    table = Table({name: [] for name in column_of}, [], [], sequences if sequence else None)
    further = [sequence] if sequence else []
    for row in _rows(reader, [*further, *column_of.values(), LABEL]):
        for name, column in column_of.items():
            table.inputs[name].append(row.values[column])
        table.labels.append(row.values[LABEL])
        table.lines.append(row.line)
        if sequence:
            sequences.append(row.values[sequence])
    return table


def _columns(found: Sequence[str], inputs: Sequence[str], has_files: bool) -> dict[str, str]:
    """Return the column of each input; raises DatasetError where one is missing."""
    columns = {name: name for name in inputs}
    if len(inputs) == 1 and has_files and (FILE in found or inputs[0] not in found):
        columns = {inputs[0]: FILE}
    wanted = [*columns.values(), LABEL]
    if set(wanted) <= set(found):
        return columns
    shown = ", ".join(found) or "nothing"
    problem = f"{LABELS_CSV}:1: the first line names the columns, here {shown}"
    raise DatasetError(f"{problem}; write '{','.join(wanted)}', with a comma between them")


def _rows(reader: csv.DictReader[str], columns: Sequence[str]) -> Iterator[_Row]:
    """Yield the rows that have a value in one of the columns.

    Raises DatasetError for the first without a value for an input, or without a cell for its label.
    """
    for cells in _cells(reader):
        values = {name: (cells[name] or "").strip() for name in columns}
        if not any(values.values()):
            continue
        place = f"{LABELS_CSV}:{reader.line_num}"
        for name in columns[:-1]:
            if not values[name]:
                raise DatasetError(f"{place}: {_empty(name)}")
        if cells[LABEL] is None:
            raise DatasetError(f"{place}: has no label; write one after a comma")
        yield _Row(reader.line_num, values)


def _cells(reader: csv.DictReader[str]) -> Iterator[dict[str, str]]:
    """Yield the cells of each row by column; raises DatasetError for those without a column."""
    while True:
        line = reader.line_num + 1
        try:
            row = next(reader, None)
        except csv.Error as error:
            raise _malformed(line, error) from error
        if row is None:
            return
        further = row.pop(None, [])
        if any(cell.strip() for cell in further):
            found = f"has {len(row) + len(further)} cells for {len(row)} columns"
            place = f"{LABELS_CSV}:{reader.line_num}"
            raise DatasetError(f"{place}: {found}; put a cell with a comma into quotes")
        yield row


def _empty(column: str) -> str:
    if column == FILE:
        return "names no file; write one before the label"
    return f"has nothing for input {column!r}; write a file or a value"
