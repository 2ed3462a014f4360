"""Inputs that models are evaluated with: a dataset's, or random ones for a manifest without it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from pytest_mlms.core.errors import OutputError
from pytest_mlms.measure.agent.predictor import Predictor
from pytest_mlms.measure.agent.process import Array
from pytest_mlms.measure.evaluate.random_inputs import draw_array
from pytest_mlms.measure.pipeline import Dataset, start_state
from pytest_mlms.provide.cases import Case

Batch = Mapping[str, Array]


@dataclass(frozen=True, eq=False)
class Inputs:
    """All inputs of an item, the same for both sides of an agreement.

    They are the dataset's, or without one the ``drawn`` batch of random values. ``batch_axes`` has
    the axis of the batch of each, the first where it is left out; None where there is none.
    """

    dataset: Dataset | None
    drawn: Batch
    batch_size: int
    batch_axes: Mapping[str, int | None] = field(default_factory=dict)

    @classmethod
    def of(cls, case: Case, dataset: Dataset | None, reference: Predictor) -> Inputs:
        """Return the inputs of a case; random ones have the shapes of the reference's model.

        A model with a state goes through a dataset with the least of its batch sizes: a batch of N
        is N sequences side by side.
        """
        manifest = case.loaded.manifest
        size = case.batch_size
        axes = manifest.batch_axes
        if dataset and manifest.has_state:
            return cls(dataset, {}, min(manifest.evaluate.batch_sizes), axes)
        if dataset:
            return cls(dataset, {}, size, axes)
        return cls(None, random_batch(reference, case), size, axes)

    def __len__(self) -> int:
        return len(self.dataset) if self.dataset else self.batch_size

    def batches(self) -> Iterable[Batch]:
        """Return all inputs in batches of one size; the last batch may be filled up."""
        if self.dataset:
            return self.dataset.batches(self.batch_size)
        return [self.drawn]

    def repeated(self, index: int) -> Batch:
        """Return a batch that is all of one input, since a model may take no other size."""
        if self.dataset:
            return self.dataset.batch([index] * self.batch_size)
        batch = {}
        for name, values in self.drawn.items():
            axis = self.batch_axes.get(name, 0)
            if axis is None:
                batch[name] = values
            else:
                row = values.take([index], axis)
                batch[name] = np.repeat(row, values.shape[axis], axis)
        return batch

    @property
    def files(self) -> Sequence[str] | None:
        """The file of each input, where inputs are files."""
        return self.dataset.files if self.dataset else None

    def label(self, index: int) -> int | None:
        """Return the class that is the label of an input, where labels are classes."""
        labels = self.dataset.labels if self.dataset else None
        if not isinstance(labels, np.ndarray) or labels.ndim != 1 or labels.dtype.kind not in "iu":
            return None
        return int(labels[index])


def random_batch(
    predictor: Predictor, case: Case, seed: int | Sequence[int] | None = None
) -> dict[str, Array]:
    """Return a batch of random values for the inputs of a case's model.

    They are drawn by ``seed``, else by the manifest's. Raises OutputError where the shape of an
    input is not known.
    """
    manifest = case.loaded.manifest
    generator = np.random.default_rng(manifest.evaluate.seed if seed is None else seed)
    specs = {spec.name: spec for spec in case.inputs}
    batch = {}
    for tensor in predictor.inputs:
        spec = specs[tensor.name]
        if spec.is_state:
            batch[tensor.name] = start_state(spec, case.batch_size)
            continue
        try:
            batch[tensor.name] = draw_array(tensor, spec, case.batch_size, generator)
        except OutputError as error:
            number = list(specs).index(spec.name)
            raise OutputError(f"{case.loaded.place('inputs', number)}: {error}") from None
    return batch
