"""A dataset's elements and labels, and batches of them made ahead in threads while the model works.

Either an .npz file with an array for each of the model's inputs and one called ``label``, or a
folder (an archive, unpacked) with a ``labels.csv`` whose columns are ``file`` and ``label``, for
models with one input.
"""

from __future__ import annotations

import csv
import zipfile
import zlib
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_mlms.errors import DatasetError
from pytest_mlms.manifest.schema import Input
from pytest_mlms.pipeline import observers as watch
from pytest_mlms.pipeline.inputs import Element, preprocess
from pytest_mlms.records import Place

__all__ = ["Dataset", "open_dataset"]

Array = NDArray[Any]

_AHEAD = 4  # batches
_WORKERS = 2


@dataclass(frozen=True, eq=False)
class Dataset:
    """Elements by input name, N each, and N labels (whole numbers, the index of the class), or None
    without.

    ``name`` is what errors call it: the manifest's line and the path.
    """

    name: str
    inputs: tuple[Input, ...]
    elements: Mapping[str, Sequence[Element]]
    labels: Array | None

    def __len__(self) -> int:
        return len(next(iter(self.elements.values())))

    def batch(self, indices: Sequence[int]) -> dict[str, Array]:
        """Return the model's inputs for the elements at ``indices``; raises DatasetError."""
        try:
            return {
                spec.name: preprocess([self.elements[spec.name][index] for index in indices], spec)
                for spec in self.inputs
            }
        except DatasetError as error:
            raise DatasetError(f"{self.name}: {error}") from error

    def batches(self, size: int) -> Iterator[dict[str, Array]]:
        """Yield all of it in order, decoded some way ahead.

        The last batch is filled up with the last element.
        """
        last = len(self) - 1
        ranges = deque(
            [min(index, last) for index in range(first, first + size)]
            for first in range(0, last + 1, size)
        )
        pending: deque[Future[dict[str, Array]]] = deque()
        with ThreadPoolExecutor(_WORKERS, "mlms-decode") as pool:
            try:
                while ranges or pending:
                    while ranges and len(pending) < _AHEAD:
                        pending.append(pool.submit(self.batch, ranges.popleft()))
                    yield pending.popleft().result()
            finally:
                pool.shutdown(cancel_futures=True)


class _Files(Sequence[bytes]):
    """Files read when they are asked for."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = paths

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, index: Any) -> Any:
        try:
            with watch.step("read"):
                return self._paths[index].read_bytes()
        except OSError as error:
            raise DatasetError(
                f"{self._paths[index].name} can't be read: {error.strerror}"
            ) from error


def open_dataset(path: Path, inputs: Sequence[Input], place: Place) -> Dataset:
    """Open the file or folder at ``path``, which the manifest names at ``place``.

    Raises DatasetError, which says what was expected and what was found.
    """
    name = f"{place}: {path}"
    try:
        elements, labels = _read_folder(path, inputs) if path.is_dir() else _read_npz(path, inputs)
    except DatasetError as error:
        raise DatasetError(f"{name} {error}") from error
    counts = {name: len(values) for name, values in elements.items()}
    if labels is not None:
        counts["label"] = len(labels)
    if len(set(counts.values())) > 1 or not min(counts.values()):
        found = ", ".join(f"{count:,} of {name!r}" for name, count in counts.items())
        raise DatasetError(
            f"{name} has {found}; each input and 'label' must have the same number, and not 0"
        )
    return Dataset(name, tuple(inputs), elements, labels)


def _read_npz(
    path: Path, inputs: Sequence[Input]
) -> tuple[dict[str, Sequence[Element]], Array | None]:
    try:
        file = np.load(path, allow_pickle=False)
        if not hasattr(file, "files"):
            raise ValueError("it holds a single array")
        with file:
            arrays = {name: file[name] for name in file.files}
    except (ValueError, OSError, EOFError, zlib.error, zipfile.BadZipFile) as error:
        raise DatasetError(
            f"is not an .npz file of plain arrays: {error}; write it with numpy.savez"
        ) from error
    missing = [spec.name for spec in inputs if spec.name not in arrays]
    if missing:
        raise DatasetError(
            f"has the arrays {sorted(arrays)}; expected one for input {missing[0]!r}"
        )
    return {spec.name: arrays[spec.name] for spec in inputs}, _checked(arrays.get("label"))


def _checked(labels: Array | None) -> Array | None:
    if labels is not None and (labels.ndim != 1 or labels.dtype.kind not in "iu"):
        raise DatasetError(
            f"has 'label' as {labels.dtype} {labels.shape}; expected one whole number an element"
        )
    return labels


def _read_folder(path: Path, inputs: Sequence[Input]) -> tuple[dict[str, Sequence[Element]], Array]:
    tables = sorted(path.rglob("labels.csv"))
    if len(tables) != 1 or len(inputs) != 1:
        raise DatasetError(
            f"has {len(tables)} labels.csv, for {len(inputs)} inputs; expected one for one"
        )
    try:
        with tables[0].open(newline="", encoding="utf-8") as file:
            rows = [(row["file"], int(row["label"])) for row in csv.DictReader(file)]
        labels = np.array([label for _, label in rows], dtype=np.int64)
    except (KeyError, TypeError, ValueError, OverflowError, csv.Error) as error:
        raise DatasetError(
            f"has a labels.csv without the columns file and label, a whole number: {error!r}"
        ) from error
    files = [tables[0].parent / name for name, _ in rows]
    return {inputs[0].name: _Files(files)}, labels
