"""Reading of labels.csv, the table of a dataset's files and their labels."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, TextIO

import numpy as np

from pytest_mlms.errors import DatasetError
from pytest_mlms.files import open_regular

__all__ = ["LabelledFile", "read_labels_csv"]

_COLUMNS = ("file", "label")
_LARGEST_LABEL = np.iinfo(np.int64).max


class LabelledFile(NamedTuple):
    """A row of the table: a path relative to the table's folder, and the index of its class."""

    file: str
    label: int


def read_labels_csv(path: Path, root: Path) -> list[LabelledFile]:
    """Return the rows of a table in a dataset's folder, ``root``, or in a folder of it.

    A byte order mark, blanks around values, empty lines and further columns are accepted. Raises
    DatasetError, which names the line.
    """
    folder = os.path.relpath(path.parent, root)
    try:
        with _open_table(path) as file:
            reader = csv.DictReader(file, skipinitialspace=True, restval="")
            return list(_rows(reader, folder))
    except UnicodeDecodeError as error:
        problem = f"{path.name} is not UTF-8 (byte {error.start})"
        raise DatasetError(f"{problem}; save it as UTF-8") from error
    except OSError as error:
        advice = "put a regular file there"
        raise DatasetError(f"{path.name} can't be read: {error.strerror}; {advice}") from error


def _open_table(path: Path) -> TextIO:
    return io.TextIOWrapper(open_regular(path), encoding="utf-8-sig", newline="")


def _rows(reader: csv.DictReader[str], folder: str) -> Iterator[LabelledFile]:
    """Yield the rows; raises DatasetError for the first that is wrong."""
    try:
        names = [name.strip() for name in reader.fieldnames or []]
        _check_columns(names)
        reader.fieldnames = names
        for row in reader:
            values = {name: (row[name] or "").strip() for name in _COLUMNS}
            if any(values.values()):
                yield _labelled_file(values, reader.line_num, folder)
    except csv.Error as error:
        advice = "write 'file,label' in its first line, and a file with its label in each other"
        raise DatasetError(f"labels.csv:{reader.line_num}: {error}; {advice}") from error


def _check_columns(names: list[str]) -> None:
    if set(_COLUMNS) <= set(names):
        return
    found = ", ".join(names) or "nothing"
    advice = "write 'file,label', with a comma between them"
    raise DatasetError(f"labels.csv:1: the first line names the columns, here {found}; {advice}")


def _labelled_file(values: Mapping[str, str], line: int, folder: str) -> LabelledFile:
    place = f"labels.csv:{line}"
    if not values["file"]:
        raise DatasetError(f"{place}: names no file; write one before the label")
    problem = _problem_of(values["file"], folder)
    if problem:
        raise DatasetError(f"{place}: {problem}; write a path below the dataset's folder")
    label = _whole_number(values["label"])
    if label is None:
        found = f"the label of {values['file']} is {values['label']!r}"
        raise DatasetError(f"{place}: {found}; write the number of its class, from 0")
    return LabelledFile(values["file"], label)


def _problem_of(name: str, folder: str) -> str:
    """Return what is wrong with the name of a file, relative to a folder of the dataset."""
    if "\0" in name:
        return f"{name!r} has a zero byte"
    path = os.path.normpath(os.path.join(folder, name))
    if os.path.isabs(path) or path.split(os.sep)[0] == os.pardir:
        return f"{name} leads outside the dataset"
    return ""


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
