"""Classification: the share of right answers, of anything that has classes."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pytest_mlms.core.errors import OutputError
from pytest_mlms.measure.evaluate.agreement import are_probabilities
from pytest_mlms.measure.evaluate.outputs import check_finite, finite_rows
from pytest_mlms.measure.evaluate.tasks.labels import labels_of, number_texts
from pytest_mlms.measure.evaluate.tasks.task import Array, Evidence, Scorer, Task
from pytest_mlms.measure.pipeline import class_numbers, postprocess, read_labels, table_of, top_k

if TYPE_CHECKING:
    from pytest_mlms.manifest.schema import Output
    from pytest_mlms.measure.pipeline import Dataset


_RANKS = {"top1": 1, "top5": 5}
"""Quantity -> how many of the best classes may have the label."""

_ROWS = 1024  # whose scores are computed at once


class Classification(Task):
    """The best classes of each input against its label, by the first output that has classes."""

    def scorer(self, outputs: Sequence[Output], dataset: Dataset) -> Scorer:
        """Return a scorer; raises DatasetError for a dataset without labels."""
        labels = np.asarray(labels_of(dataset, "one class index an element"))
        if outputs[0].has_class_numbers:
            return NumberScorer(outputs[0], dataset, labels)
        return ClassificationScorer(outputs[0], dataset, labels)


class ClassificationScorer(Scorer):
    """Collector of the values of all classes."""

    def __init__(self, output: Output, dataset: Dataset, labels: Array) -> None:
        self._output = output
        self._dataset = dataset
        self._labels = labels
        self._values: list[Array] = []
        self._finite: list[Array] = []

    def add(self, outputs: Mapping[str, Array], inputs: range) -> None:
        """Take the values of a batch; raises OutputError where they are no table of classes."""
        rows = outputs[self._output.name]
        values = table_of(self._output, rows, len(rows))
        self._finite.append(finite_rows(values))
        self._values.append(values)

    def evidence(self) -> ClassificationEvidence:
        """Return the evidence of all inputs.

        Raises OutputError for values that aren't finite, DatasetError for labels that aren't
        classes and for a file of names that has others.
        """
        output = self._output
        check_finite(output.name, np.concatenate(self._finite), self._dataset.element_name)
        values = np.concatenate(self._values)
        classes = values.shape[1]
        labels = self._labels[: len(values)]
        check_labels(self._dataset, labels, classes)
        names = [str(number) for number in range(classes)]
        if output.top_k and output.top_k.labels:
            names = read_labels(Path(output.top_k.labels), classes)
        return ClassificationEvidence(values, labels, output, names)


def check_labels(dataset: Dataset, labels: Array, classes: int) -> None:
    """Raise DatasetError for the first label that is none of so many classes."""
    wrong = (labels < 0) | (labels >= classes)
    if wrong.any():
        index = int(wrong.argmax())
        found = f"the label is {labels[index]}, of labels from {labels.min()} to {labels.max()}"
        advice = f"the model has the classes 0 to {classes - 1}; correct the labels"
        raise dataset.label_error(index, f"{found}; {advice}")


class ClassificationEvidence(Evidence):
    """The model's own values of all classes (N x classes), and the labels (N).

    The values rank the classes, as probabilities may be rounded to the same number. ``names`` are
    those of the classes.
    """

    def __init__(self, values: Array, labels: Array, output: Output, names: Sequence[str]) -> None:
        self.values = values
        self.labels = labels
        self._output = output
        self._names = names

    def __len__(self) -> int:
        return len(self.values)

    @property
    def shares(self) -> dict[str, NDArray[np.bool_]]:
        """Return whether each label is the best class, and whether it is among the best five.

        With five classes or fewer every label is among the best five, which says nothing.
        """
        found = {}
        for name, k in _RANKS.items():
            if k == 1 or k < self.values.shape[1]:
                found[name] = hits(self.values, self.labels, k)
        return found

    def figures(self, counts: Array) -> dict[str, Array]:
        """Return the quantities of ``class_figures``."""
        best = self.values.argmax(axis=1)
        return class_figures(counts, self.labels, best, self.values.shape[1])

    @property
    def losses(self) -> Array:
        """How far the value of the label is below the best one."""
        own = _label_values(self.values, self.labels).astype(np.float64)  # bytes would overflow
        best = self.values.max(axis=1, keepdims=True)
        return np.asarray((best - own)[:, 0])

    def columns(self) -> dict[str, Sequence[Any]]:
        """Return the label, and the best classes with their scores."""
        shown = self._output.top_k.k if self._output.top_k else 1
        best = top_k(self.values, shown)
        scores = np.take_along_axis(self.scores, best, axis=1)
        names = np.array(self._names, dtype=object)
        columns: dict[str, Sequence[Any]] = {"label": list(names[self.labels])}
        ranked = zip(best.T, scores.T, strict=True)
        for rank, (classes, values) in enumerate(ranked, start=1):
            columns[f"class_{rank}"] = list(names[classes])
            columns[f"{self._word}_{rank}"] = number_texts(values)
        return columns

    def answers(self) -> Sequence[int]:
        """Return the best class of each input."""
        return list(map(int, self.values.argmax(axis=1)))

    def arrays(self) -> dict[str, dict[str, Array]]:
        """Return the scores of all classes: probabilities.npz, or scores.npz for other scores."""
        name = "probabilities.npz" if self._word == "probability" else "scores.npz"
        return {name: {self._word: self.scores, "label": self.labels}}

    @functools.cached_property
    def scores(self) -> Array:
        """The values after the steps of the output (N x classes, float32)."""
        scores = np.empty(self.values.shape, np.float32)
        for first in range(0, len(scores), _ROWS):
            rows = slice(first, first + _ROWS)
            scores[rows] = postprocess(self.values[rows].astype(np.float64), self._output)
        return scores

    @functools.cached_property
    def _word(self) -> str:
        """The word for a score: probability, if all rows are probabilities."""
        return "probability" if are_probabilities(self.scores) else "score"


class NumberScorer(Scorer):
    """Collector of the numbers of classes that a model gives instead of scores."""

    def __init__(self, output: Output, dataset: Dataset, labels: Array) -> None:
        self._output = output
        self._dataset = dataset
        self._labels = labels
        self._numbers: list[Array] = []

    def add(self, outputs: Mapping[str, Array], inputs: range) -> None:
        """Take the numbers of a batch; raises OutputError for what isn't one for each input."""
        self._numbers.append(class_numbers(self._output, outputs[self._output.name], len(inputs)))

    def evidence(self) -> NumberEvidence:
        """Return the evidence of all inputs.

        Raises DatasetError for labels below 0, and for one that a file of names doesn't have, and
        OutputError for a number that it doesn't have.
        """
        numbers = np.concatenate(self._numbers)
        labels = self._labels[: len(numbers)]
        names: list[str] | None = None
        if self._output.top_k and self._output.top_k.labels:
            names = read_labels(Path(self._output.top_k.labels))
        check_labels(self._dataset, labels, len(names) if names else int(labels.max()) + 1)
        if names and numbers.max() >= len(names):
            problem = f"output {self._output.name!r} has class {numbers.max()}"
            found = f"and the file of names {len(names)} names"
            raise OutputError(f"{problem}, {found}; write one name a line for each class")
        return NumberEvidence(numbers, labels, names)


class NumberEvidence(Evidence):
    """The number of each input's class by the model (N), and the labels (N).

    ``names`` are those of the classes, None where they are their numbers.
    """

    def __init__(self, numbers: Array, labels: Array, names: Sequence[str] | None = None) -> None:
        self._numbers = numbers
        self._labels = labels
        self._names = names

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def shares(self) -> dict[str, NDArray[np.bool_]]:
        """Return whether each label is the class that the model gives."""
        return {"top1": self._numbers == self._labels}

    def figures(self, counts: Array) -> dict[str, Array]:
        """Return the quantities of ``class_figures``, of the classes that are there."""
        both = np.concatenate([self._labels, self._numbers])
        present, places = np.unique(both, return_inverse=True)
        labels, best = np.split(places, 2)
        return class_figures(counts, labels, best, len(present))

    @property
    def losses(self) -> Array:
        """1 for an input with another class than its label, else 0."""
        return np.asarray(self._numbers != self._labels, dtype=np.float64)

    def columns(self) -> dict[str, Sequence[Any]]:
        """Return the label and the class."""
        return {"label": self._named(self._labels), "class_1": self._named(self._numbers)}

    def answers(self) -> Sequence[int]:
        """Return the class of each input."""
        return list(map(int, self._numbers))

    def _named(self, numbers: Array) -> list[str]:
        names = self._names
        return [names[number] if names else str(number) for number in numbers.tolist()]


def class_figures(counts: Array, labels: Array, best: Array, classes: int) -> dict[str, Array]:
    """Return the quantities of labels and best classes (N), for R samples of the inputs (R x N).

    ``f1_macro`` is the mean of the classes' F1 scores (van Rijsbergen 1979, chapter 7). A class
    counts in a sample that has it as a label or as a best class, as in scikit-learn.
    """
    right = best == labels
    of_right = sums_by_group(counts[:, right], best[right], classes)
    either = sums_by_group(counts, labels, classes)
    either += sums_by_group(counts, best, classes)
    scores = np.divide(2 * of_right, either, out=np.zeros_like(either), where=either > 0)
    return {"f1_macro": scores.sum(axis=1) / (either > 0).sum(axis=1)}


def _label_values(values: Array, labels: Array) -> Array:
    """Return the value of each label (N x 1) of the values of all classes (N x classes)."""
    columns = labels[:, np.newaxis].astype(np.intp)
    return np.take_along_axis(values, columns, axis=1)


def hits(scores: Array, labels: Array, k: int) -> NDArray[np.bool_]:
    """Return for each row of ``scores`` (N x classes) whether the label is among its k largest.

    Equal scores rank by class index, as in pytest_mlms.measure.pipeline.top_k, so that a constant
    output earns nothing.
    """
    own = _label_values(scores, labels)
    before = np.arange(scores.shape[1]) < labels[:, np.newaxis]
    first_of_equals = (scores == own) & before
    better = (scores > own) | first_of_equals
    rank = better.sum(axis=1)
    return np.asarray(rank < k)


def sums_by_group(counts: Array, groups: Array, size: int) -> Array:
    """Return how often each sample has each group (R x ``size``).

    ``counts`` (R x N) says how often each input is in each of R samples, and ``groups`` (N) which
    group an input is in, from 0 to ``size`` - 1.
    """
    sums = np.zeros((len(counts), size))
    if len(groups) == 0:
        return sums
    order = np.argsort(groups, kind="stable")
    present, starts = np.unique(groups[order], return_index=True)
    sums[:, present] = np.add.reduceat(counts[:, order], starts, axis=1)
    return sums
