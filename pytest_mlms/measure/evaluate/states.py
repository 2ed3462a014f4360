"""States of a model that go round: an output of a call is an input of the next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_mlms.core.errors import OutputError
from pytest_mlms.manifest.schema import Input
from pytest_mlms.measure.pipeline import Dataset

Array = NDArray[Any]
Batch = Mapping[str, Array]


class StateLoop:
    """The states of a model over the batches of a dataset, in order.

    Row r of a batch of B goes on with the state of row r of the batch before: element i follows
    element i - B. Where these belong to two sequences, the state is that of the beginning.
    """

    def __init__(self, dataset: Dataset, size: int) -> None:
        self._specs = [spec for spec in dataset.inputs if spec.is_state]
        self._sequences = dataset.sequences
        self._count = len(dataset)
        self._size = size
        self._first = 0
        self._outputs: Batch | None = None

    def next(self, batch: Batch) -> Batch:
        """Return the next batch, which has the states of the beginning, with its own."""
        if not self._specs or self._outputs is None:
            return batch
        begins = self._begins()
        states = {}
        for spec in self._specs:
            states[spec.name] = self._state(spec, batch[spec.name], begins)
        return {**batch, **states}

    def done(self, outputs: Batch) -> None:
        """Take all outputs of a batch."""
        self._outputs = outputs
        self._first += self._size

    def _begins(self) -> NDArray[np.bool_]:
        """Return for each row of the next batch whether a sequence begins there."""
        begins = np.zeros(self._size, bool)
        if self._sequences is None:
            return begins
        for row in range(min(self._size, self._count - self._first)):
            index = self._first + row
            begins[row] = self._sequences[index] != self._sequences[index - self._size]
        return begins

    def _state(self, spec: Input, start: Array, begins: NDArray[np.bool_]) -> Array:
        outputs = self._outputs or {}
        name = spec.from_output or ""
        if name not in outputs:
            known = ", ".join(outputs)
            found = f"the model has no output {name!r}, from_output of input {spec.name!r}"
            raise OutputError(f"{found}; write one of {known}")
        state = outputs[name]
        if state.shape != start.shape:
            found = f"output {name!r} is {state.shape}, and its input {spec.name!r} is"
            raise OutputError(f"{found} {start.shape}; correct the shape of the input")
        if not begins.any():
            return state
        if spec.batch_axis is None:
            return start
        shape = [1] * state.ndim
        shape[spec.batch_axis] = -1
        return np.where(begins.reshape(shape), start, state)
