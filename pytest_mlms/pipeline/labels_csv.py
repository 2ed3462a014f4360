"""Reading of labels.csv, the table of a dataset's files and their labels."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pytest_mlms.errors import DatasetError

__all__ = ["LabelledFile", "read_labels_csv"]

_COLUMNS = ("file", "label")
_LARGEST_LABEL = np.iinfo(np.int64).max


class LabelledFile(NamedTuple):
    """A row of the table: a path relative to the table's folder, and the index of its class."""

    file: str
    label: int


def read_labels_csv(path: Path) -> list[LabelledFile]:
    """Return the rows of a table.

    A byte order mark, blanks around values, empty lines and further columns are accepted. Raises
    DatasetError, which names the line.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file, skipinitialspace=True, restval="")
            return list(_rows(reader))
    except UnicodeDecodeError as error:
        problem = f"{path.name} is not UTF-8 (byte {error.start})"
        raise DatasetError(f"{problem}; save it as UTF-8") from error


def _rows(reader: csv.DictReader[str]) -> Iterator[LabelledFile]:
    """Yield the rows; raises DatasetError for the first that is wrong."""
    try:
        names = [name.strip() for name in reader.fieldnames or []]
        _check_columns(names)
        reader.fieldnames = names
        for row in reader:
            values = {name: (row[name] or "").strip() for name in _COLUMNS}
            if any(values.values()):
                yield _labelled_file(values, reader.line_num)
    except csv.Error as error:
        advice = "write 'file,label' in its first line, and a file with its label in each other"
        raise DatasetError(f"labels.csv:{reader.line_num}: {error}; {advice}") from error


def _check_columns(names: list[str]) -> None:
    if set(_COLUMNS) <= set(names):
        return
    found = ", ".join(names) or "nothing"
    advice = "write 'file,label', with a comma between them"
    raise DatasetError(f"labels.csv:1: the first line names the columns, here {found}; {advice}")


def _labelled_file(values: Mapping[str, str], line: int) -> LabelledFile:
    place = f"labels.csv:{line}"
    if not values["file"]:
        raise DatasetError(f"{place}: names no file; write one before the label")
    label = _whole_number(values["label"])
    if label is None:
        found = f"the label of {values['file']} is {values['label']!r}"
        raise DatasetError(f"{place}: {found}; write the number of its class, from 0")
    return LabelledFile(values["file"], label)


def _whole_number(text: str) -> int | None:
    """Return the number that a text such as "7" or "7.0" stands for; None for another text."""
    whole, _, zeros = text.partition(".")
    if zeros.strip("0"):
        return None
    try:
        number = int(whole)
    except ValueError:
        return None
    return number if abs(number) <= _LARGEST_LABEL else None
