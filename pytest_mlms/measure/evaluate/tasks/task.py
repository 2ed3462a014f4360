"""A task of machine learning: its labels, its outputs, and how well these fit.

A task is one file beside this one. Its scorer turns the outputs of each input into evidence, which
is small, so that a dataset of any size streams through it. Estimates, their intervals and the
comparison of two stacks are computed from evidence in the same way for every task. A scorer also
keeps marks on pictures: what a model found in an input, for people to look at.
"""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pytest_mlms.core.arrays import Array
from pytest_mlms.core.tasks import LabelForm

if TYPE_CHECKING:
    from pytest_mlms.manifest.schema import Output
    from pytest_mlms.measure.pipeline import Dataset

__all__ = ["Array", "Evidence", "LabelForm", "Scorer", "Task"]


_LONGEST_SIDE = 128  # of a mask that is kept, in pixels


class BoxMark(NamedTuple):
    """A box on a picture: left, top, width and height in its pixels.

    ``kind`` is "label" for an object of the labels, else whether the detection is right or wrong.
    """

    kind: Literal["label", "right", "wrong"]
    name: str
    score: float | None
    box: tuple[float, float, float, float]


class ClassCounts(NamedTuple):
    """The objects or pixels of a class: labelled ones, and right and wrong ones found."""

    name: str
    labelled: int
    right: int
    wrong: int


class MaskPair(NamedTuple):
    """The class of each pixel (H x W) by the label and by the model; label -1 doesn't count.

    Of instances it is the number of the object and of the detection, from 1 on, and 0 elsewhere.
    """

    label: Array
    found: Array
    are_instances: bool = False


class WorstMasks:
    """Small copies of the masks with the largest losses, at most ``most`` of them."""

    def __init__(self, most: int = 12) -> None:
        self._most = most
        self._heap: list[tuple[float, int, MaskPair]] = []

    def offer(self, loss: float, index: int, masks: MaskPair) -> None:
        """Keep the masks of an input where its loss is among the largest; volumes are not kept."""
        if masks.label.ndim != 2 or not self.takes(loss):
            return
        small = masks._replace(label=_small(masks.label), found=_small(masks.found))
        heapq.heappush(self._heap, (loss, -index, small))
        if len(self._heap) > self._most:
            heapq.heappop(self._heap)

    def takes(self, loss: float) -> bool:
        """Return whether a loss is among the largest so far."""
        is_full = len(self._heap) == self._most
        return loss > 0 and not (is_full and loss <= self._heap[0][0])

    def kept(self) -> Mapping[int, MaskPair]:
        """Return the masks by the number of their input."""
        return {-number: masks for _, number, masks in self._heap}


def _small(mask: Array) -> Array:
    """Return every n-th pixel, so that a mask of any size takes few kilobytes."""
    step = -(-max(mask.shape) // _LONGEST_SIDE)
    return np.ascontiguousarray(mask[::step, ::step], dtype=np.int32)


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

    def without(self, names: Collection[str]) -> Evidence:
        """Return evidence that may leave out these figures, as nobody asks for them."""
        return self

    @property
    def rounding(self) -> Mapping[str, float]:
        """The change of a figure that rounding of the outputs explains, where one is small."""
        return {}

    @property
    def biases(self) -> Mapping[str, float]:
        """How much larger figures are by chance than those of all inputs there may be."""
        return {}

    @property
    def unmeasured(self) -> Mapping[str, str]:
        """The quantities of the task that these inputs have no figure of: why, and what to write.

        A limit on one of them is an error.
        """
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
        """Return the findings of each class, where inputs have several objects or pixels."""
        return ()

    def boxes_on(self, index: int) -> Sequence[BoxMark]:
        """Return the boxes that the model found on the picture of an input, surest first."""
        return ()

    def masks_on(self, index: int) -> MaskPair | None:
        """Return the masks of an input, which are kept for the worst ones."""
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
    """A task, by its name under ``task:`` in manifests.

    The class of another package has the facts of ``pytest_mlms.core.tasks.TaskFacts``, where ours
    have theirs in a table, as the check of manifests needs them and imports no numpy.

    Attributes:
        labels: The form of the label of an input.
        output_types: The types of outputs that it scores; a manifest has at least one of them.
        quantities: The names of its quantities in ``pytest_mlms.core.quantities``.
    """

    labels: ClassVar[LabelForm]
    output_types: ClassVar[tuple[str, ...]]
    quantities: ClassVar[tuple[str, ...]]

    @abstractmethod
    def scorer(self, outputs: Sequence[Output], dataset: Dataset) -> Scorer:
        """Return a scorer for the outputs of a manifest that it scores, and a dataset.

        Steps of the outputs that name files name local ones. Raises DatasetError for a dataset that
        has no such labels.
        """
