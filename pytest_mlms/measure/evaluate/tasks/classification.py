"""Classification: the share of right answers, of anything that has classes."""

from __future__ import annotations

import copy
import functools
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy
from numpy.typing import NDArray

from pytest_mlms.core.arrays import Array
from pytest_mlms.core.errors import OutputError
from pytest_mlms.measure.evaluate.agreement import are_probabilities
from pytest_mlms.measure.evaluate.closeness import check_finite, finite_rows
from pytest_mlms.measure.evaluate.ranked_scores import (
    Areas,
    Curve,
    calibration_bias,
    calibration_errors,
)
from pytest_mlms.measure.evaluate.tasks.labels import labels_of, number_texts
from pytest_mlms.measure.evaluate.tasks.task import Evidence, Scorer, Task
from pytest_mlms.measure.pipeline import class_numbers, postprocess, read_labels, table_of, top_k

if TYPE_CHECKING:
    from pytest_mlms.manifest.schema import Output
    from pytest_mlms.measure.pipeline import Dataset


_RANKS = {"top1": 1, "top5": 5}
"""Quantity -> how many of the best classes may have the label."""

_AREAS = ("auc", "average_precision")
_SUM_ERROR = 1e-3  # of probabilities in float16
_BINARY = 2  # classes
_MOST_SCORES = 10_000
"""Inputs x classes up to which the areas of each sample are computed, which takes the most time."""

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


def scores_of(values: Array, output: Output) -> Array:
    """Return the values of all classes after the steps of an output (N x classes, float32)."""
    scores = np.empty(values.shape, np.float32)
    for first in range(0, len(scores), _ROWS):
        rows = slice(first, first + _ROWS)
        scores[rows] = postprocess(values[rows].astype(np.float64), output)
    return scores


def check_labels(dataset: Dataset, labels: Array, classes: int) -> None:
    """Raise DatasetError for the first label that is none of so many classes."""
    wrong = (labels < 0) | (labels >= classes)
    if wrong.any():
        index = int(wrong.argmax())
        found = f"the label is {labels[index]}, of labels from {labels.min()} to {labels.max()}"
        advice = f"the model has the classes 0 to {classes - 1}; correct the labels"
        if set(np.unique(labels)) == {-1, 1}:
            advice = "classes count from 0; write 0 for -1"
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
        self._left_out: Collection[str] = ()

    def __len__(self) -> int:
        return len(self.values)

    def without(self, names: Collection[str]) -> ClassificationEvidence:
        """Return evidence without the areas and the calibration that are among ``names``."""
        found = copy.copy(self)
        found._left_out = names
        return found

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
        """Return the quantities of ``class_figures``, and those of scores that can be measured.

        With more than two classes, the areas of ``Curve`` are means over the classes of one against
        the rest, those that a sample has as a label, and not as the only one.
        """
        best = self.values.argmax(axis=1)
        classes = self.values.shape[1]
        positive = 1 if classes == _BINARY else None
        found = class_figures(counts, self.labels, best, classes, positive)
        left_out = {*self._left_out, *self._unscored}
        if not left_out.issuperset(_AREAS):
            found.update(zip(_AREAS, self._areas(counts), strict=True))
        if "ece" not in left_out:
            found["ece"] = calibration_errors(counts, *self._confidences)
        return {**found, **_undefined(found.keys() & self.unmeasured, len(counts))}

    @property
    def biases(self) -> dict[str, float]:
        """The part of the calibration error that chance explains."""
        if "ece" in self.unmeasured:
            return {}
        return {"ece": calibration_bias(*self._confidences)}

    @functools.cached_property
    def _confidences(self) -> tuple[Array, NDArray[np.bool_]]:
        """The score of each input's best class (N, float64), and whether it is right (N)."""
        best = self.values.argmax(axis=1)
        confidences = self.scores[np.arange(len(best)), best].astype(np.float64)
        return confidences, best == self.labels

    @functools.cached_property
    def unmeasured(self) -> dict[str, str]:
        """The quantities that these scores and labels don't tell, with what to write."""
        is_binary = self.values.shape[1] == _BINARY
        of_scores = dict.fromkeys(self._unscored, self._lacking_probabilities)
        return {**unmeasured_by(self.labels, is_binary=is_binary), **of_scores}

    @property
    def _unscored(self) -> tuple[str, ...]:
        """The quantities that need probabilities which aren't there."""
        if not self._lacking_probabilities:
            return ()
        return ("ece",) if self.values.shape[1] == _BINARY else ("ece", *_AREAS)

    def _areas(self, counts: Array) -> Areas:
        """Return the areas of R samples, means over the classes that a sample has.

        Those of many scores are the areas of all inputs and their slopes, which takes one curve of
        each class instead of one for each sample.
        """
        if len(self) * len(self._ranked_classes) <= _MOST_SCORES:
            return _means([self._curve(number).areas(counts) for number in self._ranked_classes])
        areas, slopes = self._areas_and_slopes
        roc, precision = (
            np.clip(area + (counts - 1) @ slope, 0, 1)
            for area, slope in zip(areas, slopes, strict=True)
        )
        return Areas(roc, precision)

    @functools.cached_property
    def _areas_and_slopes(self) -> tuple[Areas, Areas]:
        """The areas of all inputs (1 each), and their slopes (N): means over the classes."""
        once = np.ones((1, len(self)))
        areas, slopes = np.zeros((2, 1)), np.zeros((2, len(self)))
        for number in self._ranked_classes:
            curve = self._curve(number)
            areas += curve.areas(once)
            slopes += curve.slopes()
        classes = len(self._ranked_classes)
        return Areas(*(areas / classes)), Areas(*(slopes / classes))

    @functools.cached_property
    def _ranked_classes(self) -> list[int]:
        """Class 1 of two classes, or each class that is a label."""
        return [1] if self.values.shape[1] == _BINARY else list(map(int, np.unique(self.labels)))

    def _curve(self, number: int) -> Curve:
        """Return the curve of a class, by scores that softmax and sigmoid haven't rounded yet."""
        scores = self.values[:, number].astype(np.float64)
        has_logits = self._has_softmax or not self._has_probabilities
        if self._output.threshold is None and has_logits:
            is_binary = self.values.shape[1] == _BINARY
            others = self.values[:, 0] * self._scale if is_binary else self._log_sums
            scores = scores * self._scale - others
        return Curve.of(scores, self.labels == number)

    @functools.cached_property
    def _log_sums(self) -> Array:
        """The logarithm of the sum of the exponentials of all values of an input (N)."""
        found = np.empty(len(self))
        for first in range(0, len(found), _ROWS):
            rows = slice(first, first + _ROWS)
            values = self.values[rows].astype(np.float64) * self._scale
            found[rows] = scipy.special.logsumexp(values, axis=1)
        return found

    @property
    def _has_softmax(self) -> bool:
        return any(step.name == "softmax" for step in self._output.steps)

    @property
    def _scale(self) -> float:
        """How much a step of the values is: 1 where they aren't quantised."""
        return self._output.quantised_step or 1.0

    @functools.cached_property
    def _lacking_probabilities(self) -> str:
        """Why the scores are no probabilities, and what to write; "" where they are."""
        output = self._output
        names = {step.name for step in output.steps}
        is_whole = self.values.dtype.kind in "iu"
        if is_whole and "dequantize" not in names:
            problem = f"output {output.name!r} has whole numbers"
            advice = "write 'dequantize: {scale: …, zero_point: …}' as its first step"
        elif "softmax" in names and not is_whole and are_probabilities(self.values):
            problem = f"output {output.name!r} has probabilities before its softmax"
            advice = "leave out the step 'softmax'"
        elif self._has_probabilities:
            return ""
        else:
            step = "softmax" if output.threshold is None else "sigmoid"
            problem, advice = (
                f"output {output.name!r} has no probabilities",
                f"write the step {step!r}",
            )
        return f"{problem}; {advice}, or limit other quantities"

    @functools.cached_property
    def _has_probabilities(self) -> bool:
        """True if all rows are probabilities, whose sums may be rounded as their integers are.

        Those without a background add up to less.
        """
        if are_probabilities(self.scores):
            return True
        if (self.scores < 0).any() or (self.scores > 1).any():
            return False
        errors = self.scores.sum(axis=1, dtype=np.float64) - 1
        if not any(step.name == "drop_background" for step in self._output.steps):
            errors = np.abs(errors)
        is_float = self.values.dtype.kind == "f"
        of_sums = _SUM_ERROR if is_float else self._scale * self.scores.shape[1] / 2
        return bool(errors.max(initial=0.0) <= of_sums)

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
        return scores_of(self.values, self._output)

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
        check_labels(self._dataset, labels, len(names) if names else max(int(labels.max()), 1) + 1)
        check_names(self._output, names, numbers)
        return NumberEvidence(numbers, labels, names)


def check_names(output: Output, names: Sequence[str] | None, numbers: Array) -> None:
    """Raise OutputError for a class that the file of names doesn't name, if there is one."""
    if names and numbers.max() >= len(names):
        problem = f"output {output.name!r} has class {numbers.max()}"
        found = f"and the file of names {len(names)} names"
        raise OutputError(f"{problem}, {found}; write one name a line for each class")


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
        """Return the quantities of ``class_figures``, of the classes that are there.

        There are two where no label is another, whatever classes the model gives.
        """
        known = range(_BINARY if self._is_binary else 0)
        both = np.concatenate([known, self._labels, self._numbers]).astype(np.int64)
        present, places = np.unique(both, return_inverse=True)
        labels, best = np.split(places[len(known) :], 2)
        positive = 1 if self._is_binary else None
        found = class_figures(counts, labels, best, len(present), positive)
        return {**found, **_undefined(found.keys() & self.unmeasured, len(counts))}

    @functools.cached_property
    def _is_binary(self) -> bool:
        names = self._names
        return len(names) == _BINARY if names else bool(self._labels.max() < _BINARY)

    @functools.cached_property
    def unmeasured(self) -> dict[str, str]:
        """The quantities of scores, and those that the labels don't tell."""
        reason = "the output has numbers of classes; name an output with scores"
        found = dict.fromkeys((*_AREAS, "ece"), reason)
        return {**unmeasured_by(self._labels, is_binary=self._is_binary), **found}

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


def unmeasured_by(labels: Array, *, is_binary: bool) -> dict[str, str]:
    """Return the quantities that labels (N) of one class don't tell, with what to do.

    Areas of them are undefined, or 1 for any scores.
    """
    if (labels != labels[0]).any():
        return {}
    names = (*_AREAS, "precision", "recall") if is_binary and labels[0] != 1 else _AREAS
    reason = f"all labels are class {labels[0]}; add inputs of another, or limit other quantities"
    return dict.fromkeys(names, reason)


def _undefined(names: Collection[str], samples: int) -> dict[str, Array]:
    return {name: np.full(samples, np.nan) for name in names}


def class_figures(
    counts: Array, labels: Array, best: Array, classes: int, positive: int | None = None
) -> dict[str, Array]:
    """Return the quantities of labels and best classes (N), for R samples of the inputs (R x N).

    ``f1_macro`` is the mean of the classes' F1 scores (van Rijsbergen 1979, chapter 7). A class
    counts in a sample that has it as a label or as a best class, as in scikit-learn. Precision and
    recall are those of the class ``positive``, or means over the same classes. A precision without
    such a best class is 0, as is in means a recall without such a label.
    """
    right = best == labels
    of_right = sums_by_group(counts[:, right], best[right], classes)
    labelled = sums_by_group(counts, labels, classes)
    found = sums_by_group(counts, best, classes)
    is_there = (labelled + found) > 0

    def mean(numerators: Array, denominators: Array) -> Array:
        shares = np.zeros_like(of_right)
        np.divide(numerators, denominators, out=shares, where=denominators > 0)
        return np.asarray(shares.sum(axis=1) / is_there.sum(axis=1))

    if positive is None:
        precision, recall = mean(of_right, found), mean(of_right, labelled)
    else:
        hits_of, all_of = of_right[:, positive], labelled[:, positive]
        with np.errstate(divide="ignore", invalid="ignore"):
            recall = hits_of / all_of
            precision = np.where(all_of > 0, hits_of / np.maximum(found[:, positive], 1), np.nan)
    f1 = mean(2 * of_right, labelled + found)
    return {"f1_macro": f1, "precision": precision, "recall": recall}


def _label_values(values: Array, labels: Array) -> Array:
    """Return the value of each label (N x 1) of the values of all classes (N x classes)."""
    columns = labels[:, np.newaxis].astype(np.intp)
    return np.take_along_axis(values, columns, axis=1)


def _means(areas: Sequence[Areas]) -> Areas:
    """Return the means of the areas of R samples over classes, without those that are NaN."""
    both = np.array(areas)
    known = ~np.isnan(both)
    with np.errstate(invalid="ignore", divide="ignore"):
        return Areas(*(np.where(known, both, 0).sum(axis=0) / known.sum(axis=0)))


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
