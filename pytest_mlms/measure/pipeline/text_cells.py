"""Texts of a dataset's table, in its cells or in files that they name, and pairs of texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pytest_mlms.core.errors import DatasetError
from pytest_mlms.measure.pipeline.cells import TableFolder
from pytest_mlms.measure.pipeline.folder_files import FolderFiles

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
