"""Accuracy of classification: the scores of a dataset, and the share of right answers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pytest_mlms.agent.predictor import Predictor
from pytest_mlms.errors import DatasetError
from pytest_mlms.evaluate.inputs import Inputs
from pytest_mlms.evaluate.outputs import check_finite, finite_rows
from pytest_mlms.evaluate.rows import predict_rows
from pytest_mlms.manifest.schema import Output
from pytest_mlms.pipeline import Dataset, postprocess, table_of
from pytest_mlms.records import Estimate
from pytest_mlms.statistics import wilson_interval

__all__ = [
    "ScoredDataset",
    "classify",
    "classify_dataset",
    "count_hits",
    "estimate_accuracy",
    "estimate_share",
    "hits",
    "ranks",
]

Array = NDArray[Any]

_RANKS = {"top1": 1, "top5": 5}
"""Quantity of accuracy -> how many of the best classes may have the label."""


class ScoredDataset(NamedTuple):
    """Scores of a whole dataset (N x classes, float32), and its labels (N).

    ``ranking`` has the model's own values, which the classes are ranked by.
    """

    scores: Array
    ranking: Array
    labels: Array


def classify(batches: Iterable[Array], dataset: Dataset, output: Output) -> ScoredDataset:
    """Return the scores of the whole dataset.

    ``batches`` are the rows of the model's output, a batch at a time. They may be computed as they
    are asked for. Raises OutputError for scores that aren't finite or no classes, DatasetError for
    labels that aren't classes.
    """
    if dataset.labels is None:
        found = f"{dataset.name} has no array 'label'"
        raise DatasetError(f"{found}; add it, one class index an element")
    finite = []
    scored = []
    ranked = []
    for rows in batches:
        values = table_of(output.name, rows, len(rows))
        ranked.append(values)
        finite.append(finite_rows(values))
        with np.errstate(invalid="ignore"):  # check_finite reports all inputs at once
            scores = postprocess(values.astype(np.float64), output)
        scored.append(scores.astype(np.float32))
    check_finite(output.name, np.concatenate(finite), dataset.element_name)
    all_scores = np.concatenate(scored)
    ranking = np.concatenate(ranked)
    classes = all_scores.shape[1]
    labels = np.asarray(dataset.labels)
    _check_labels(dataset.name, labels, classes)
    return ScoredDataset(all_scores, ranking, labels)


def classify_dataset(
    predictor: Predictor, inputs: Inputs, dataset: Dataset, output: Output
) -> ScoredDataset:
    """Return the scores of the whole dataset by a model, for which it is prepared as ``inputs``."""
    batches = predict_rows(predictor, inputs, [output])
    rows = (batch.rows(output.name) for batch in batches)
    return classify(rows, dataset, output)


def _check_labels(dataset: str, labels: Array, classes: int) -> None:
    low = labels.min()
    high = labels.max()
    if low < 0 or high >= classes:
        found = f"{dataset} has labels from {low} to {high}"
        raise DatasetError(f"{found}, and the model the classes 0 to {classes - 1}")


def ranks(classes: int) -> dict[str, int]:
    """Return k by quantity, for the quantities that say something of so many classes.

    With five classes or fewer every label is among the best five.
    """
    found = {}
    for name, k in _RANKS.items():
        if k == 1 or k < classes:
            found[name] = k
    return found


def hits(scores: Array, labels: Array, k: int) -> NDArray[np.bool_]:
    """Return for each row of ``scores`` (N x classes) whether the label is among its k largest.

    Equal scores rank by class index, as in pytest_mlms.pipeline.top_k, so that a constant output
    earns nothing.
    """
    label_column = labels[:, None].astype(np.intp)
    own = np.take_along_axis(scores, label_column, axis=1)
    before = np.arange(scores.shape[1]) < label_column
    first_of_equals = (scores == own) & before
    better = (scores > own) | first_of_equals
    rank = better.sum(axis=1)
    return np.asarray(rank < k)


def count_hits(scores: Array, labels: Array, k: int) -> int:
    """Return how many rows of ``scores`` (N x classes) have the label among their k largest."""
    return int(hits(scores, labels, k).sum())


def estimate_accuracy(scores: Array, labels: Array) -> dict[str, Estimate]:
    """Return the quantities of accuracy with their intervals over the inputs."""
    estimates = {}
    for name, k in ranks(scores.shape[1]).items():
        count = count_hits(scores, labels, k)
        estimates[name] = estimate_share(count, len(labels))
    return estimates


def estimate_share(count: int, inputs: int) -> Estimate:
    """Return the share of ``count`` among ``inputs``, with Wilson's interval at 95 %."""
    share = count / inputs
    low, high = wilson_interval(count, inputs, confidence=0.95)
    return Estimate(
        value=share,
        low=low,
        high=high,
        confidence=0.95,
        replicates=inputs,
        of="inputs",
    )
