"""A trial of a model: its outputs for batches of two sizes, which tell the axis of the batch."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_mlms.author.draft.data import ArrayData, Data
from pytest_mlms.author.draft.parts import InputPart
from pytest_mlms.measure.agent.predictor import Predictor
from pytest_mlms.measure.agent.process import Refused
from pytest_mlms.measure.evaluate.inputs import draw_array
from pytest_mlms.measure.pipeline import preprocess, start_state

Array = NDArray[Any]

_SIZES = (2, 3)  # batches of a trial


@dataclass(frozen=True)
class Trial:
    """The outputs of two runs by name, with batches of the sizes ``small`` and ``large``.

    Both are the same for a model that takes one size. The second one took ``seconds`` an input.
    ``inputs`` are the shapes of the small batch.
    """

    small: int
    large: int
    outputs: Mapping[str, Array]
    outputs_large: Mapping[str, Array]
    seconds: float = 0.0
    inputs: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

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


def try_model(
    predictor: Predictor, inputs: Sequence[InputPart], data: Data | None, only: int | None
) -> Trial:
    """Run batches of two sizes; of ``only`` one, or of one input, where the model takes no more.

    Raises Refused where the model does not run.
    """
    if only is not None:
        return _run_trial(predictor, inputs, data, (only, only))
    try:
        return _run_trial(predictor, inputs, data, _SIZES)
    except Refused:
        return _run_trial(predictor, inputs, data, (1, 1))


def draw_batch(
    predictor: Predictor, inputs: Sequence[InputPart], data: Data | None, size: int
) -> dict[str, Array]:
    """Return a batch for a model: the first rows of arrays, or random values.

    Raises MlmsError where the shape of an input is not known.
    """
    specs = {part.name: part.spec() for part in inputs}
    arrays = data if isinstance(data, ArrayData) else None
    generator = np.random.default_rng(0)
    batch: dict[str, Array] = {}
    for tensor in predictor.inputs:
        spec = specs[tensor.name]
        if spec.is_state:
            batch[tensor.name] = start_state(spec, size)
        elif arrays is not None and tensor.name in arrays.arrays:
            batch[tensor.name] = preprocess(arrays.first_rows(tensor.name, size), spec)
        else:
            batch[tensor.name] = draw_array(tensor, spec, size, generator)
    return batch


def _run_trial(
    predictor: Predictor, inputs: Sequence[InputPart], data: Data | None, sizes: tuple[int, int]
) -> Trial:
    outputs = []
    shapes = []
    seconds = 0.0
    for size in sizes:  # the second run has no first inference in its time
        batch = draw_batch(predictor, inputs, data, size)
        shapes.append({name: array.shape for name, array in batch.items()})
        began = time.perf_counter()
        outputs.append(predictor.predict(batch))
        seconds = (time.perf_counter() - began) / size
    return Trial(*sizes, outputs[0], outputs[-1], seconds, shapes[0])
