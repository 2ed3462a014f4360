"""A dataset whose elements code makes into inputs, in a process of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import NamedTuple, Protocol

import numpy as np

from pytest_mlms.core.errors import DatasetError, OutputError
from pytest_mlms.measure.pipeline.dataset import Array, Batch, Dataset
from pytest_mlms.measure.pipeline.inputs import as_input


class CodeElement(NamedTuple):
    """An element of a dataset: its number, the suffix of its file's name, and its content."""

    number: int
    suffix: str
    content: bytes


class CodeRunner(Protocol):
    """The functions of some code, each run in another process."""

    def preprocess(self, elements: Sequence[CodeElement]) -> list[Array]:
        """Return the inputs for some elements, by their number; raises DatasetError."""

    def postprocess(self, outputs: Sequence[Array]) -> Array:
        """Return what the code makes of the outputs of a batch; raises OutputError."""


@dataclass(frozen=True, eq=False)
class CodeDataset(Dataset):
    """A dataset of files; ``runner`` returns the code that makes inputs and scores of them.

    Without code for one of the two, that is done as for other datasets.
    """

    runner: Callable[[], CodeRunner] | None = None
    makes_inputs: bool = False
    makes_scores: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def batch(self, indices: Sequence[int]) -> Batch:
        """Return the model's inputs for the elements at ``indices``; raises DatasetError."""
        if not self.makes_inputs or self.runner is None:
            return super().batch(indices)
        with self._lock:  # an agent does one thing at a time
            arrays = self.runner().preprocess([self._element(index) for index in indices])
        if len(arrays) != len(self.inputs):
            found = f"preprocess returns {len(arrays)} arrays"
            raise DatasetError(f"{self.name}: {found}, and there are {len(self.inputs)} inputs")
        batch = {}
        for spec, array in zip(self.inputs, arrays, strict=True):
            batch[spec.name] = as_input(np.asarray(array), spec)
        return batch

    def check_element(self, index: int) -> None:
        """Raise DatasetError for an element that the code makes no inputs of."""
        self.batch([index])
        if self.labels is not None:
            self.labels[index]

    def _element(self, index: int) -> CodeElement:
        content = next(iter(self.elements.values()))[index]
        if not isinstance(content, bytes):
            problem = f"{self.place(index)} is no file, which the code of a manifest reads"
            raise DatasetError(f"{self.name}: {problem}; name an archive with a labels.csv")
        name = self.files[index] if self.files else ""
        return CodeElement(index, PurePath(name).suffix, content)

    def scored(self, rows: Mapping[str, Array]) -> Mapping[str, Array]:
        """Return the scores of classes that the code makes of the rows of an output."""
        if not self.makes_scores or self.runner is None:
            return rows
        ((name, values),) = rows.items()
        with self._lock:
            found = self.runner().postprocess([values])
        return {name: _scores(found, values)}


def _scores(found: Array, values: Array) -> Array:
    """Return inputs x classes; of the classes alone, those get 1 and the others 0."""
    inputs = len(values)
    if found.shape == (inputs,) and found.dtype.kind in "iu" and values.ndim > 1:
        classes = int(np.prod(values.shape[1:]))
        if found.min() < 0 or found.max() >= classes:
            raise OutputError(f"postprocess returns a class that is none of {classes}")
        return np.eye(classes, dtype=np.float32)[found]
    if found.ndim != 2 or len(found) != inputs:
        problem = f"postprocess returns {found.shape} for {inputs} inputs"
        raise OutputError(f"{problem}; expected inputs x classes, or a class for each input")
    return found
