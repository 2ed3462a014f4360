"""How well the outputs of a model fit a column of a table, as if it were the target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_mlms.author.draft.axes import TEXTS
from pytest_mlms.author.draft.table_files import ColumnsData, as_number, is_missing
from pytest_mlms.author.draft.table_labels import Classes
from pytest_mlms.author.draft.table_target import width_of
from pytest_mlms.core.errors import MlmsError
from pytest_mlms.measure.agent.predictor import Predictor
from pytest_mlms.measure.agent.process import Refused

Array = NDArray[Any]

_MOST_ROWS = 300
_BETTER = 0.1  # by which the first column must fit better than the last one


@dataclass(frozen=True)
class Fit:
    """A table, a model that takes it, and its classes."""

    data: ColumnsData
    predictor: Predictor
    classes: Classes

    def better(self, last: str, first: str) -> str:
        """Return the first column where outputs surely fit it better than the last one.

        Each is left out of the features in turn. Without such evidence it is the last one.
        """
        by_first = self._fit(first)
        return first if by_first > self._fit(last) + _BETTER and by_first > 0 else last

    def _fit(self, target: str) -> float:
        """Return the share of the target that outputs explain, at most 1; 0 where none is known."""
        (tensor,) = self.predictor.inputs
        data = self.data.without([target])
        takes_texts = tensor.dtype == TEXTS
        kinds = ("numbers", "truths")
        names = [name for name in data.names if takes_texts or data.kind(name) in kinds]
        width = width_of(tensor)
        if len(tensor.shape) < 2 or (width is not None and len(names) < width):
            return 0.0
        columns = [self.data.columns[name] for name in [*names[-(width or len(names)) :], target]]
        count = min(len(self.data.lines), _MOST_ROWS)
        rows = np.linspace(0, len(self.data.lines) - 1, count).astype(int)
        complete = [row for row in rows if not any(is_missing(cells[row]) for cells in columns)]
        if len(complete) < 2:
            return 0.0
        read = str if takes_texts else as_number
        cells = [[read(column[row]) for row in complete] for column in columns[:-1]]
        batch = np.array(cells).T.reshape(-1, *(size or len(cells) for size in tensor.shape[1:]))
        try:
            batch = batch.astype(str if takes_texts else tensor.dtype)
            outputs = self.predictor.predict({tensor.name: batch})
        except (Refused, MlmsError, ValueError):
            return 0.0
        labels = [columns[-1][row] for row in complete]
        found = [explained(labels, array, self.classes) for array in outputs.values()]
        return max(found, default=0.0)


def explained(labels: list[str], output: Array, classes: Classes) -> float:
    """Return the share of labels that an output explains.

    It is r² for numbers. For classes it is the share of labels that are right, of those that the
    most frequent class doesn't get right by itself.
    """
    if len(output) != len(labels) or not output.size:
        return 0.0
    values = output.reshape(len(labels), -1)
    found, places = np.unique(labels, return_inverse=True)
    if values.shape[1] > 1:
        if len(found) > values.shape[1]:
            return 0.0
        names = list(classes.names) if set(found) <= set(classes.names) else found.tolist()
        numbers = np.array([names.index(label) for label in labels])
        return _beyond_majority(values.argmax(axis=1) == numbers, places)
    if values.dtype.kind != "f":
        same = np.array([str(a) == _whole(b) for a, b in zip(values[:, 0], labels, strict=True)])
        return _beyond_majority(same, places)
    try:
        numbers = np.array([as_number(label) for label in labels])
    except ValueError:
        return 0.0
    spread = float(((numbers - numbers.mean()) ** 2).sum())
    rest = float(((numbers - values[:, 0]) ** 2).sum())
    return 1 - rest / spread if spread > 0 and np.isfinite(rest) else 0.0


def _beyond_majority(right: Array, places: Array) -> float:
    most = np.bincount(places).max() / len(places)
    return float((right.mean() - most) / (1 - most)) if most < 1 else 0.0


def _whole(label: str) -> str:
    return label.removesuffix(".0")
