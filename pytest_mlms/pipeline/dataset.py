"""Datasets: elements and labels, and batches that threads prepare while the model works.

A dataset is an .npz file with an array for each of the model's inputs and one called ``label``,
or, for models with one input, a folder (an archive, unpacked) with a ``labels.csv`` whose columns
are ``file`` and ``label``: docs/datasets.md.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_mlms.errors import DatasetError
from pytest_mlms.files import read_regular
from pytest_mlms.manifest.schema import Input
from pytest_mlms.memory import shortage
from pytest_mlms.pipeline import observers
from pytest_mlms.pipeline.inputs import Element, preprocess
from pytest_mlms.pipeline.labels_csv import read_labels_csv
from pytest_mlms.pipeline.npz import read_npz
from pytest_mlms.records import Place

__all__ = ["Dataset", "open_dataset"]

Array = NDArray[Any]
Batch = dict[str, Array]

_AHEAD = 4  # batches
_WORKERS = 2  # threads
_MOST_BYTES = 1 << 30  # of an element's file


@dataclass(frozen=True, eq=False)
class Dataset:
    """N elements for each input, by its name, and N labels.

    A label is a whole number, the index of the class; ``labels`` is None for a dataset without.
    ``name`` is used in errors: the manifest's line and its source. ``files`` are the names of the
    elements in the table of labels; None for arrays.
    """

    name: str
    inputs: tuple[Input, ...]
    elements: Mapping[str, Sequence[Element]]
    labels: Array | None
    files: Sequence[str] | None = None

    def __len__(self) -> int:
        first = next(iter(self.elements.values()))
        return len(first)

    def element_name(self, index: int) -> str:
        """Return what a message calls an element: its file, or its row of the arrays."""
        if self.files is None:
            return f"row {index} of {self.name}"
        return self.files[index]

    def batch(self, indices: Sequence[int]) -> Batch:
        """Return the model's inputs for the elements at ``indices``; raises DatasetError."""
        batch = {}
        try:
            for spec in self.inputs:
                batch[spec.name] = self._preprocessed(indices, spec)
        except DatasetError as error:
            raise DatasetError(f"{self.name}: {error}") from error
        return batch

    def _preprocessed(self, indices: Sequence[int], spec: Input) -> Array:
        elements = self.elements[spec.name]
        chosen = [elements[index] for index in indices]
        try:
            return preprocess(chosen, spec)
        except DatasetError:
            self._check_each(indices, spec)
            raise

    def _check_each(self, indices: Sequence[int], spec: Input) -> None:
        """Raise DatasetError for the first of these elements that fails by itself."""
        elements = self.elements[spec.name]
        for index in indices:
            try:
                preprocess([elements[index]], spec)
            except DatasetError as error:
                name = f"element {index}" if self.files is None else self.files[index]
                raise DatasetError(f"{name}: {error}") from error

    def check_size(self, size: int) -> None:
        """Raise DatasetError where a batch of ``size`` would not fit into the memory that is free.

        It is there twice: on this side and in the agent.
        """
        one = self.batch([0])
        missing = shortage(2 * size * sum(array.nbytes for array in one.values()))
        if missing:
            problem = f"a batch of {size:,} takes {missing}"
            raise DatasetError(f"{self.name}: {problem}; write smaller batch_sizes")

    def batches(self, size: int) -> Iterator[Batch]:
        """Yield batches of ``size`` in order, some of them prepared ahead.

        The last batch is filled up with the last element. Raises DatasetError for batches that
        would not fit into the memory that is free.
        """
        self.check_size(size)
        pending: deque[Future[Batch]] = deque()
        with ThreadPoolExecutor(_WORKERS, "mlms-decode") as pool:
            try:
                for indices in self._indices(size):
                    pending.append(pool.submit(self.batch, indices))
                    if len(pending) == _AHEAD:
                        yield pending.popleft().result()
                while pending:
                    yield pending.popleft().result()
            finally:
                pool.shutdown(cancel_futures=True)

    def _indices(self, size: int) -> Iterator[list[int]]:
        last = len(self) - 1
        for first in range(0, len(self), size):
            indices = range(first, first + size)
            yield [min(index, last) for index in indices]


class _Files(Sequence[bytes]):
    """The contents of regular files below a folder, each read when it is needed.

    ``names`` are relative to ``folder``, which is in ``root``. What a link leads to must be in
    ``root``, too.
    """

    def __init__(self, root: Path, folder: Path, names: Sequence[str]) -> None:
        self._root = os.path.realpath(root)
        self._folder = folder
        self._names = names

    def __len__(self) -> int:
        return len(self._names)

    def __getitem__(self, index: Any) -> Any:
        name = self._names[index]
        try:
            with observers.step("read"):
                return self._read(name)
        except OSError as error:
            advice = "correct its name in labels.csv, or put the file there"
            raise DatasetError(f"{name} can't be read: {error.strerror}; {advice}") from error

    def _read(self, name: str) -> bytes:
        path = os.path.realpath(os.path.join(self._folder, name))
        if os.path.commonpath([self._root, path]) != self._root:
            raise DatasetError(f"{name} leads to {path}, outside the dataset; put the file there")
        return read_regular(Path(path), _MOST_BYTES)


@dataclass(frozen=True)
class _Content:
    """Content of a file or folder."""

    elements: Mapping[str, Sequence[Element]]
    labels: Array | None
    files: Sequence[str] | None = None


def open_dataset(path: Path, inputs: Sequence[Input], place: Place, source: str = "") -> Dataset:
    """Open the file or folder at ``path``.

    Errors begin with ``place``, the manifest's line that names it, and ``source``, what it says
    there; an archive is unpacked under another path, which its user doesn't know. Raises
    DatasetError, which says what was expected and what was found.
    """
    name = f"{place}: {source or path}"
    read = _read_folder if path.is_dir() else _read_npz
    try:
        content = read(path, inputs)
        _check_counts(content)
    except DatasetError as error:
        raise DatasetError(f"{name} {error}") from error
    return Dataset(name, tuple(inputs), content.elements, content.labels, content.files)


def _check_counts(content: _Content) -> None:
    """Check that each input has as many elements as there are labels, and not none."""
    columns: dict[str, Any] = dict(content.elements)
    if content.labels is not None:
        columns["label"] = content.labels
    counts = []
    parts = []
    for name, values in columns.items():
        counts.append(len(values))
        parts.append(f"{len(values):,} of {name!r}")
    if min(counts) == 0 or min(counts) != max(counts):
        found = ", ".join(parts)
        expected = "each input and 'label' must have the same number, and not 0"
        raise DatasetError(f"has {found}; {expected}")


def _read_npz(path: Path, inputs: Sequence[Input]) -> _Content:
    wanted = [spec.name for spec in inputs]
    names, arrays = read_npz(path, {*wanted, "label"})
    for name in wanted:
        if name not in arrays:
            raise DatasetError(f"has the arrays {names}; expected one for input {name!r}")
    labels = arrays.get("label")
    if labels is not None:
        _check_labels(labels)
    elements: dict[str, Any] = {name: arrays[name] for name in wanted}
    return _Content(elements, labels)


def _check_labels(labels: Array) -> None:
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        found = f"{labels.dtype} {labels.shape}"
        raise DatasetError(f"has 'label' as {found}; expected one whole number an element")


def _read_folder(path: Path, inputs: Sequence[Input]) -> _Content:
    tables = sorted(path.rglob("labels.csv"))
    if len(tables) != 1 or len(inputs) != 1:
        found = f"{len(tables)} labels.csv, for {len(inputs)} inputs"
        advice = "an archive has one, for a model with one input; other models need an .npz file"
        raise DatasetError(f"has {found}; {advice}")
    table = tables[0]
    try:
        rows = read_labels_csv(table, path)
    except DatasetError as error:
        raise DatasetError(f"has a table that can't be used: {error}") from error
    names = [row.file for row in rows]
    labels = [row.label for row in rows]
    elements = {inputs[0].name: _Files(path, table.parent, names)}
    return _Content(elements, np.array(labels, dtype=np.int64), names)
