"""The table of a dataset, labels.csv; its cells are elements and labels: files, numbers, texts."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pytest_mlms.core.arrays import Array
from pytest_mlms.core.errors import DatasetError
from pytest_mlms.core.files import open_regular, read_regular
from pytest_mlms.measure.pipeline import observers
from pytest_mlms.measure.pipeline.npz import read_npy

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
        with io.TextIOWrapper(open_regular(path), encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, skipinitialspace=True, strict=True)
            names = _named(reader)
            found = sequence if sequence in names else None
            return _table(reader, _columns(names, inputs, has_files), found)
    except UnicodeDecodeError as error:
        raise DatasetError(f"{_undecodable(path)}; save it as UTF-8") from error
    except OSError as error:
        advice = "put a regular file there"
        raise DatasetError(f"{path.name} can't be read: {error.strerror}; {advice}") from error


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
    for values in _rows(reader, [*further, *column_of.values(), LABEL]):
        for name, column in column_of.items():
            table.inputs[name].append(values[column])
        table.labels.append(values[LABEL])
        table.lines.append(reader.line_num)
        if sequence:
            sequences.append(values[sequence])
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


def _rows(reader: csv.DictReader[str], columns: Sequence[str]) -> Iterator[dict[str, str]]:
    """Yield the values of the rows that have one in one of the columns.

    Raises DatasetError for the first without a value for an input, or without a cell for its label.
    """
    for cells in _cells(reader):
        values = {name: (cells[name] or "").strip() for name in columns}
        if not any(values.values()):
            continue
        place = f"{LABELS_CSV}:{reader.line_num}"
        for name in columns[:-1]:
            if not values[name]:
                problem = f"has nothing for input {name!r}; write a file or a value"
                if name == FILE:
                    problem = "names no file; write one before the label"
                raise DatasetError(f"{place}: {problem}")
        if cells[LABEL] is None:
            raise DatasetError(f"{place}: has no label; write one after a comma")
        yield values


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


_MOST_BYTES = 1 << 30  # of a file


def check_name(name: str, folder: str) -> None:
    """Raise DatasetError for a name that is no file below the dataset's folder.

    ``folder`` is the one that the name is relative to, relative to the dataset's.
    """
    advice = "write a path below the dataset's folder"
    if "\0" in name:
        raise DatasetError(f"{name!r} has a zero byte; {advice}")
    path = os.path.normpath(os.path.join(folder, name))
    if os.path.isabs(path) or path.split(os.sep)[0] == os.pardir:
        raise DatasetError(f"{name} leads outside the dataset; {advice}")


class FolderFiles(Sequence[bytes]):
    """The contents of regular files below a folder.

    ``names`` are relative to ``folder``, which is in ``root``. What a link leads to must be in
    ``root``, too. ``listing`` is the file that has the names, for messages, which don't name the
    element: the dataset does.
    """

    def __init__(
        self, root: Path, folder: Path, names: Sequence[str], listing: str = "labels.csv"
    ) -> None:
        self._root = os.path.realpath(root)
        self._folder = folder
        self._names = names
        self._listing = listing

    def __len__(self) -> int:
        return len(self._names)

    def __getitem__(self, index: Any) -> Any:
        name = self._names[index]
        try:
            with observers.step("read"):
                path = os.path.realpath(os.path.join(self._folder, name))
                if os.path.commonpath([self._root, path]) != self._root:
                    problem = f"the file leads to {path}, outside the dataset"
                    raise DatasetError(f"{problem}; put the file there")
                return read_regular(Path(path), _MOST_BYTES)
        except OSError as error:
            advice = f"correct its name in {self._listing}, or put the file there"
            problem = f"the file can't be read: {error.strerror}"
            raise DatasetError(f"{problem}; {advice}") from error


_NPY = ".npy"
_MOST_NUMBERS = 1 << 20  # characters of a cell that is read as numbers


def parse_numbers(text: str) -> Array | None:
    """Return the numbers of a text with blanks between them, None for another text.

    They are int64 if all are whole numbers, otherwise float64. A single one has no axis.
    """
    words = text.split()
    if not words or len(text) > _MOST_NUMBERS:
        return None
    for kind in (np.int64, np.float64):
        try:
            numbers = np.array([kind(word) for word in words], dtype=kind)
        except (ValueError, OverflowError):
            continue
        return numbers if len(words) > 1 else numbers.reshape(())
    return None


@dataclass(frozen=True)
class TableFolder:
    """A table, the folder that its files are relative to, and the dataset's folder, ``root``."""

    table: Table
    folder: Path
    root: Path

    def files(self, names: Sequence[str]) -> FolderFiles:
        """Return the files of a column.

        Raises DatasetError, which names the line, for a name that leads outside of the dataset.
        """
        for index, name in enumerate(names):
            self.check_file(index, name)
        return FolderFiles(self.root, self.folder, names)

    def check_file(self, index: int, name: str) -> None:
        """Raise DatasetError, which names the line, unless the file is below the dataset's."""
        relative = os.path.relpath(self.folder, self.root)
        try:
            check_name(name, relative)
        except DatasetError as error:
            raise DatasetError(f"{self.table.place(index)}: {error}") from None


class Cells(Sequence[Any]):
    """The cells of a column: numbers, arrays of .npy files, or the contents of other files.

    ``shape`` is the shape of an element, where it is known; numbers are put into it.
    """

    def __init__(
        self, source: TableFolder, cells: Sequence[str], shape: tuple[int, ...] | None = None
    ) -> None:
        self._cells = cells
        self._shape = shape
        self._files = FolderFiles(source.root, source.folder, cells)
        for index, cell in enumerate(cells):
            if parse_numbers(cell) is None:
                source.check_file(index, cell)

    def __len__(self) -> int:
        return len(self._cells)

    def __getitem__(self, index: Any) -> Any:
        cell = self._cells[index]
        numbers = parse_numbers(cell)
        if numbers is not None:
            return self._in_shape(numbers)
        data = self._files[index]
        return read_npy(data) if cell.endswith(_NPY) else data

    def _in_shape(self, numbers: Array) -> Array:
        if self._shape is None:
            return numbers
        try:
            return numbers.reshape(self._shape)
        except ValueError:
            shape = " x ".join(map(str, self._shape)) or "one"
            found = f"{numbers.size} numbers in a cell, and its input takes {shape}"
            raise DatasetError(f"{found}; write as many, or correct the input's shape") from None


_TXT = ".txt"


class TextCells(Sequence[str]):
    """The texts of a column: a cell, or the content of the .txt file that it names, UTF-8.

    Files are read when they are asked for; errors don't name the row, the dataset does.
    """

    def __init__(self, source: TableFolder, cells: Sequence[str]) -> None:
        self._cells = cells
        self._files = FolderFiles(source.root, source.folder, cells)
        for index, cell in enumerate(cells):
            if _is_file(cell):
                source.check_file(index, cell)

    def __len__(self) -> int:
        return len(self._cells)

    def __getitem__(self, index: Any) -> Any:
        cell = self._cells[index]
        if not _is_file(cell):
            return cell
        try:
            return self._files[index].decode("utf-8-sig").strip()
        except UnicodeDecodeError as error:
            line = error.object[: error.start].count(b"\n") + 1
            problem = f"{cell}:{line} is not UTF-8 (byte {error.start})"
            raise DatasetError(f"{problem}; save it as UTF-8") from error
        except DatasetError as error:
            raise DatasetError(f"{cell}: {error}") from error


def _is_file(cell: str) -> bool:
    return cell.endswith(_TXT) and not any(character.isspace() for character in cell)


def paired(columns: Sequence[Sequence[str]]) -> Sequence[Any]:
    """Return the texts of one column, or the pairs of two."""
    if len(columns) == 1:
        return columns[0]
    return _Pairs(*columns)


class _Pairs(Sequence[tuple[str, str]]):
    def __init__(self, first: Sequence[str], second: Sequence[str]) -> None:
        self._first = first
        self._second = second

    def __len__(self) -> int:
        return min(len(self._first), len(self._second))

    def __getitem__(self, index: Any) -> Any:
        return self._first[index], self._second[index]
