"""Files of a dataset's folder, each read when it is needed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pytest_mlms.core.errors import DatasetError
from pytest_mlms.core.files import read_regular
from pytest_mlms.measure.pipeline import observers

_MOST_BYTES = 1 << 30  # of a file


def check_name(name: str, folder: str) -> None:
    """Raise DatasetError for a name that is no file below the dataset's folder.

    ``folder`` is the one that the name is relative to, relative to the dataset's.
    """
    problem = _problem_of(name, folder)
    if problem:
        raise DatasetError(f"{problem}; write a path below the dataset's folder")


def _problem_of(name: str, folder: str) -> str:
    if "\0" in name:
        return f"{name!r} has a zero byte"
    path = os.path.normpath(os.path.join(folder, name))
    if os.path.isabs(path) or path.split(os.sep)[0] == os.pardir:
        return f"{name} leads outside the dataset"
    return ""


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
                return self._read(name)
        except OSError as error:
            advice = f"correct its name in {self._listing}, or put the file there"
            problem = f"the file can't be read: {error.strerror}"
            raise DatasetError(f"{problem}; {advice}") from error

    def _read(self, name: str) -> bytes:
        path = os.path.realpath(os.path.join(self._folder, name))
        if os.path.commonpath([self._root, path]) != self._root:
            problem = f"the file leads to {path}, outside the dataset"
            raise DatasetError(f"{problem}; put the file there")
        return read_regular(Path(path), _MOST_BYTES)
