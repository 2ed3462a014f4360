"""Tasks whose outputs and labels are texts: evidence of sums over inputs, and what collects it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from pytest_mlms.core.errors import DatasetError, OutputError
from pytest_mlms.manifest.schema import Output
from pytest_mlms.measure.evaluate.tasks.task import (
    Array,
    Evidence,
    Scorer,
    Task,
)
from pytest_mlms.measure.pipeline import Dataset
from pytest_mlms.measure.pipeline.outputs import decode_texts, normalized_label


class TextMeasure(Protocol):
    """How texts are compared with their labels: figures that are formulas of S sums over inputs."""

    columns: ClassVar[Sequence[str]]
    """The names of the S counts of an input, as predictions.csv has them."""

    def counts(self, label: str, text: str) -> Sequence[float]:
        """Return the S counts of one input."""

    def figures(self, sums: Array) -> Mapping[str, Array]:
        """Return each quantity (R) for the sums of R samples of inputs (R x S)."""

    def losses(self, counts: Array) -> Array:
        """Return how wrong each of N inputs is (N), larger is worse, from its counts (N x S)."""

    def shares(self, counts: Array) -> Mapping[str, NDArray[np.bool_]]:
        """Return the shares of N inputs by quantity, from their counts (N x S)."""


@dataclass(frozen=True, eq=False)
class TextEvidence(Evidence):
    """The texts of N inputs, their labels, and the counts (N x S) that a measure makes of them."""

    measure: TextMeasure
    labels: Sequence[str]
    texts: Sequence[str]
    counts: Array

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def shares(self) -> Mapping[str, NDArray[np.bool_]]:
        """The shares of the measure."""
        return self.measure.shares(self.counts)

    def figures(self, counts: Array) -> Mapping[str, Array]:
        """Return the figures of the measure for R samples of the inputs (R x N)."""
        return self.measure.figures(np.asarray(counts, dtype=np.float64) @ self.counts)

    @property
    def losses(self) -> Array:
        """The losses of the measure."""
        return self.measure.losses(self.counts)

    def answers(self) -> Sequence[str]:
        """Return the text of each input."""
        return self.texts

    def columns(self) -> Mapping[str, Sequence[object]]:
        """Return label, text and counts."""
        columns: dict[str, Sequence[object]] = {"label": self.labels, "text": self.texts}
        for name, values in zip(self.measure.columns, self.counts.T, strict=True):
            is_whole = (values == np.round(values)).all()
            columns[name] = values.astype(np.int64).tolist() if is_whole else values.tolist()
        return columns


@dataclass(frozen=True, eq=False)
class TextScorer(Scorer):
    """Collector of the texts of one output, and of the counts that a measure makes of them."""

    output: Output
    dataset: Dataset
    measure: TextMeasure
    _labels: list[str] = field(default_factory=list)
    _texts: list[str] = field(default_factory=list)
    _counts: list[Sequence[float]] = field(default_factory=list)

    def add(self, outputs: Mapping[str, Array], inputs: range) -> None:
        """Take the outputs of a batch; raises OutputError, and DatasetError for absent labels."""
        texts = decode_texts(outputs[self.output.name], self.output)
        if len(texts) != len(inputs):
            found = f"output {self.output.name!r} of {len(inputs)} inputs is {len(texts)} texts"
            raise OutputError(f"{found}; check its steps")
        for index, text in zip(inputs, texts, strict=True):
            label = self.label(index)
            self._labels.append(label)
            self._texts.append(text)
            self._counts.append(self.measure.counts(label, text))

    def label(self, index: int) -> str:
        """Return the label of an input as the output's steps make it; raises DatasetError."""
        return normalized_label(label_text(self.dataset, index), self.output)

    def evidence(self) -> TextEvidence:
        """Return the evidence of all inputs that were added."""
        shape = (len(self._counts), len(self.measure.columns))
        counts = np.array(self._counts, dtype=np.float64).reshape(shape)
        return TextEvidence(self.measure, self._labels, self._texts, counts)


def label_text(dataset: Dataset, index: int) -> str:
    """Return the label of an input, a text; raises DatasetError where it isn't one."""
    if dataset.labels is None:
        raise DatasetError(f"{dataset.name} has no labels; add a column 'label' with the texts")
    label = dataset.label(index)
    if not isinstance(label, str):
        problem = f"the label {label!r} is no text; write texts, or name another task"
        raise dataset.label_error(index, problem)
    return str(label)


class TextTask(Task):
    """A task with a text as the label of each input, and an output of type text."""

    @abstractmethod
    def measure(self) -> TextMeasure:
        """Return how its texts are compared; raises MlmsError where a library is missing."""

    def scorer(self, outputs: Sequence[Output], dataset: Dataset) -> Scorer:
        """Return a scorer for the first of the outputs."""
        return TextScorer(outputs[0], dataset, self.measure())


def divided(numbers: Array, by: Array) -> Array:
    """Return the quotients, NaN where ``by`` is 0."""
    quotients = np.full(np.broadcast(numbers, by).shape, np.nan)
    np.divide(numbers, by, out=quotients, where=np.asarray(by) != 0)
    return quotients
