"""Cells of a dataset's table as elements and labels: files, numbers and texts."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_mlms.core.errors import DatasetError
from pytest_mlms.measure.pipeline.folder_files import FolderFiles, check_name
from pytest_mlms.measure.pipeline.labels_csv import Table
from pytest_mlms.measure.pipeline.npz import read_npy

Array = NDArray[Any]

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

    ``shape`` is that of an element, where it is known; numbers are put into it.
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
