"""A task of machine learning: its labels, its outputs, and how well these fit.

A task is one file beside this one. Its scorer turns the outputs of each input into evidence, which
is small, so that a dataset of any size streams through it. Estimates, their intervals and the
comparison of two stacks are computed from evidence in the same way for every task.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from pytest_mlms.core.tasks import LabelForm
from pytest_mlms.measure.evaluate.tasks.marks import BoxMark, ClassCounts, MaskPair

if TYPE_CHECKING:  # the schema of manifests imports tasks of other packages while it is made
    from pytest_mlms.manifest.schema import Output
    from pytest_mlms.measure.pipeline import Dataset

__all__ = ["Array", "Evidence", "LabelForm", "Scorer", "Task"]

Array = NDArray[Any]


class Evidence(ABC):
    """The evidence of each of N inputs for the quantities of a task."""

    @abstractmethod
    def __len__(self) -> int:
        """Return N."""

    @property
    def shares(self) -> Mapping[str, NDArray[np.bool_]]:
        """The quantities that are shares of inputs: for each input (N) whether it is right.

        Their intervals are Wilson's, and two stacks are compared by the inputs that changed.
        """
        return {}

    @abstractmethod
    def figures(self, counts: Array) -> Mapping[str, Array]:
        """Return the other quantities, for R samples of the inputs.

        ``counts`` (R x N) says how often each input is in each sample: a row of ones is the dataset
        itself. Each quantity has R values, NaN where a sample can't tell it.
        """

    @property
    def rounding(self) -> Mapping[str, float]:
        """The change of a figure that rounding of the outputs explains, where one is small."""
        return {}

    @property
    @abstractmethod
    def losses(self) -> Array:
        """How wrong each input is (N), larger is worse: the order of the worst inputs.

        Those above 0 are shown where a limit is broken.
        """

    @abstractmethod
    def columns(self) -> Mapping[str, Sequence[Any]]:
        """Return the columns of predictions.csv, N values each, beside the input and its file."""

    def answers(self) -> Sequence[Any] | None:
        """Return the answer to each input (N), as plain values that rounding doesn't change.

        None where the answers are numbers, whose last bits differ between machines.
        """
        return None

    def by_class(self) -> Sequence[ClassCounts]:
        """Return what was found of each class, where inputs have several objects or pixels."""
        return ()

    def boxes_on(self, index: int) -> Sequence[BoxMark]:
        """Return the boxes that the model found on the picture of an input, surest first."""
        return ()

    def masks_on(self, index: int) -> MaskPair | None:
        """Return the masks of an input where they are kept: those of the worst ones."""
        return None

    def arrays(self) -> Mapping[str, Mapping[str, Array]]:
        """Return what else is kept of the item: by the name of an .npz file, arrays by name."""
        return {}


class Scorer(ABC):
    """Collector of the evidence of one stack for a dataset, a batch at a time."""

    @abstractmethod
    def add(self, outputs: Mapping[str, Array], inputs: range) -> None:
        """Take the model's outputs by name, a row for each of ``inputs`` of the dataset.

        Raises OutputError for outputs that can't be scored, and DatasetError for labels that don't
        fit them.
        """

    @abstractmethod
    def evidence(self) -> Evidence:
        """Return the evidence of all inputs that were added."""


class Task(ABC):
    """A task, by its name under ``task:`` in manifests; ``pytest_mlms.core.tasks`` has its facts.

    Attributes:
        name: As in "object-detection".
        labels: What the label of an input is.
        output_types: The types of outputs that it scores, of which a manifest has at least one.
        quantities: The names of its quantities in ``pytest_mlms.core.quantities``.
    """

    name: ClassVar[str]
    labels: ClassVar[LabelForm]
    output_types: ClassVar[tuple[str, ...]]
    quantities: ClassVar[tuple[str, ...]]

    @abstractmethod
    def scorer(self, outputs: Sequence[Output], dataset: Dataset) -> Scorer:
        """Return a scorer for the outputs of a manifest that it scores, and a dataset.

        Steps of the outputs that name files name local ones. Raises DatasetError for a dataset that
        has no such labels.
        """
