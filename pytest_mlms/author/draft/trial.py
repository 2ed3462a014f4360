"""A trial of a model: its outputs for batches of two sizes, which tell the axis of the batch."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from mlms_predictors import Tensor
from numpy.typing import NDArray

from pytest_mlms.author.draft.data import ArrayData, Data
from pytest_mlms.author.draft.inputs import has_free_batch
from pytest_mlms.author.draft.parts import InputPart
from pytest_mlms.measure.agent.predictor import Predictor
from pytest_mlms.measure.agent.process import Refused
from pytest_mlms.measure.evaluate.inputs import draw_array
from pytest_mlms.measure.pipeline import preprocess

Array = NDArray[Any]

_SIZES = (2, 3)  # batches of a trial


@dataclass(frozen=True)
class Trial:
    """The outputs of two runs by name, with batches of the sizes ``small`` and ``large``.

    Both are the same for a model that takes one size. The second one took ``seconds`` an input.
    """

    small: int
    large: int
    outputs: Mapping[str, Array]
    outputs_large: Mapping[str, Array]
    seconds: float = 0.0

    def batch_axis(self, name: str) -> int | None:
        """Return the axis of an output that is as long as the batch, None where there is none."""
        small = self.outputs[name].shape
        large = self.outputs_large[name].shape
        if len(small) != len(large):
            return None
        for axis, (size, other) in enumerate(zip(small, large, strict=True)):
            if size == self.small and other == self.large:
                return axis
        return None

    def rows(self, name: str) -> Array:
        """Return an output with the axis of the batch first."""
        axis = self.batch_axis(name)
        assert axis is not None, "outputs without a batch are left out before"
        return np.moveaxis(self.outputs[name], axis, 0)


def try_model(predictor: Predictor, inputs: Sequence[InputPart], data: Data | None) -> Trial:
    """Run batches of two sizes; of one input where the model takes no more.

    Raises Refused where the model does not run.
    """
    batches = _Batches(predictor, inputs, data)
    if not has_free_batch(predictor.inputs):
        size = _only_size(predictor.inputs)
        return _run_trial(predictor, batches, (size, size))
    try:
        return _run_trial(predictor, batches, _SIZES)
    except Refused:
        return _run_trial(predictor, batches, (1, 1))


def draw_batch(
    predictor: Predictor, inputs: Sequence[InputPart], data: Data | None, size: int
) -> dict[str, Array]:
    """Return a batch for a model: the first rows of arrays, or random values."""
    return _Batches(predictor, inputs, data).of(size)


def _only_size(tensors: Sequence[Tensor]) -> int:
    """Return the size of the only batch that a model takes."""
    for tensor in tensors:
        if tensor.shape and tensor.shape[0] is not None:
            return tensor.shape[0]
    return 1


def _run_trial(predictor: Predictor, batches: _Batches, sizes: tuple[int, int]) -> Trial:
    outputs = []
    seconds = 0.0
    for size in sizes:  # the second run has no first inference in its time
        batch = batches.of(size)
        began = time.perf_counter()
        outputs.append(predictor.predict(batch))
        seconds = (time.perf_counter() - began) / size
    return Trial(*sizes, outputs[0], outputs[-1], seconds)


class _Batches:
    """Batches for a trial: the first rows of arrays, or random values."""

    def __init__(
        self, predictor: Predictor, inputs: Sequence[InputPart], data: Data | None
    ) -> None:
        self._tensors = predictor.inputs
        self._specs = {part.name: part.spec() for part in inputs}
        self._arrays = data if isinstance(data, ArrayData) else None

    def of(self, size: int) -> dict[str, Any]:
        """Return a batch. Raises MlmsError where the shape of an input is not known."""
        generator = np.random.default_rng(0)
        batch = {}
        for tensor in self._tensors:
            spec = self._specs[tensor.name]
            if self._arrays is not None and tensor.name in self._arrays.arrays:
                rows = self._arrays.first_rows(tensor.name, size)
                batch[tensor.name] = preprocess(rows, spec)
            else:
                batch[tensor.name] = draw_array(tensor, spec, size, generator)
        return batch
