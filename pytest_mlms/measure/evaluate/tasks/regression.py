"""Regression: numbers against numbers, such as values, pitches and embeddings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pytest_mlms.core.arrays import Array
from pytest_mlms.measure.evaluate.closeness import check_finite
from pytest_mlms.measure.evaluate.tasks.labels import finite_label, labels_of, number_texts
from pytest_mlms.measure.evaluate.tasks.task import Evidence, Scorer, Task
from pytest_mlms.measure.pipeline.outputs import steps_done

if TYPE_CHECKING:
    from pytest_mlms.manifest.schema import Output
    from pytest_mlms.measure.pipeline import Dataset


_EPSILONS = 8 * float(np.finfo(np.float32).eps)


class Regression(Task):
    """The first tensor against the numbers of the label, which are as many."""

    def scorer(self, outputs: Sequence[Output], dataset: Dataset) -> Scorer:
        """Return a scorer; raises DatasetError for a dataset without labels."""
        return RegressionScorer(outputs[0], dataset)


class _Sums(NamedTuple):
    """The sums that the quantities need of one input, or of each of several.

    ``numbers`` is how many it has. Labels are summed up less the first number of the first label,
    which keeps digits that the variance of large numbers would lose.
    """

    numbers: Any
    absolute_error: Any
    squared_error: Any
    label: Any
    squared_label: Any
    cosine: Any


class RegressionScorer(Scorer):
    """Collector of the sums of errors."""

    def __init__(self, output: Output, dataset: Dataset) -> None:
        self._output = output
        self._dataset = dataset
        self._labels = labels_of(dataset, "numbers an element")
        self._sums: list[_Sums] = []
        self._first: list[tuple[float, float]] = []
        self._finite: list[bool] = []
        self._shift = 0.0

    def add(self, outputs: Mapping[str, Array], inputs: range) -> None:
        """Take the numbers of a batch.

        Raises DatasetError for labels of another size, and for those with NaN or infinity.
        """
        rows = steps_done(outputs[self._output.name], self._output)
        for values, index in zip(rows, inputs, strict=True):
            predicted = np.ravel(values).astype(np.float64)
            label = finite_label(self._dataset, index).ravel().astype(np.float64)
            if predicted.size != label.size or not label.size:
                found = f"the label has {label.size} numbers"
                other = f"output {self._output.name!r} {predicted.size}"
                raise self._dataset.label_error(index, f"{found}, and {other}; write as many")
            if not self._sums:
                self._shift = float(label[0])
            self._finite.append(bool(np.isfinite(predicted).all()))
            self._first.append((float(label[0]), float(predicted[0])))
            self._sums.append(_sums(label, predicted, self._shift))

    def evidence(self) -> RegressionEvidence:
        """Return the evidence of all inputs; raises OutputError for numbers that aren't finite."""
        finite = np.array(self._finite)
        check_finite(self._output.name, finite, self._dataset.element_name)
        return RegressionEvidence(np.array(self._sums), np.array(self._first))


def _sums(label: Array, predicted: Array, shift: float) -> _Sums:
    with np.errstate(invalid="ignore", over="ignore"):  # what isn't finite is reported at the end
        error = predicted - label
        lengths = np.linalg.norm(label) * np.linalg.norm(predicted)
        return _Sums(
            numbers=label.size,
            absolute_error=np.abs(error).sum(),
            squared_error=np.square(error).sum(),
            label=(label - shift).sum(),
            squared_label=np.square(label - shift).sum(),
            cosine=label @ predicted / lengths if lengths else 0.0,
        )


class RegressionEvidence(Evidence):
    """The sums of each input (N x 6), and the first numbers of its label and output (N x 2)."""

    def __init__(self, sums: Array, first: Array) -> None:
        self._sums = sums
        self._first = first

    def __len__(self) -> int:
        return len(self._sums)

    def figures(self, counts: Array) -> dict[str, Array]:
        """Return the mean absolute error, the root of the mean squared one, R² and the cosine.

        R² is 1 - sum of squared errors / sum of squared deviations of the labels from their mean,
        over all numbers. A vector without length has the cosine 0; single numbers have none.
        """
        total = _Sums(*(counts @ self._sums).T)
        deviations = total.squared_label - total.label**2 / total.numbers
        with np.errstate(divide="ignore", invalid="ignore"):
            explained = 1 - total.squared_error / deviations
        found = {
            "mae": total.absolute_error / total.numbers,
            "rmse": np.sqrt(total.squared_error / total.numbers),
            "r2": np.where(deviations > 0, explained, np.nan),
        }
        if self._has_vectors:
            found["cosine"] = total.cosine / counts.sum(axis=1)
        return found

    @property
    def rounding(self) -> dict[str, float]:
        """The rounding of float32 at the size of the labels: of those whose number is kept."""
        size = _EPSILONS * float(np.abs(self._first[:, 0]).max(initial=0.0))
        return {"mae": size, "rmse": size}

    @property
    def losses(self) -> Array:
        """The mean absolute error of each input."""
        sums = _Sums(*self._sums.T)
        return np.asarray(sums.absolute_error / sums.numbers)

    def columns(self) -> dict[str, Sequence[Any]]:
        """Return the label and the prediction where these are single numbers, else the errors."""
        sums = _Sums(*self._sums.T)
        if not self._has_vectors:
            labels, predictions = self._first.T
            return {"label": number_texts(labels), "prediction": number_texts(predictions)}
        return {
            "numbers": sums.numbers.astype(int).tolist(),
            "mean_absolute_error": number_texts(sums.absolute_error / sums.numbers),
            "root_mean_squared_error": number_texts(np.sqrt(sums.squared_error / sums.numbers)),
            "cosine": number_texts(sums.cosine),
        }

    @property
    def _has_vectors(self) -> bool:
        return bool((self._sums[:, 0] > 1).any())
