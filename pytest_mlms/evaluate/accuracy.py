"""Accuracy of classification: pure functions of scores and labels."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_mlms.records import Estimate
from pytest_mlms.statistics import wilson_interval

__all__ = ["count_hits", "estimate_accuracy", "hits"]


def count_hits(scores: NDArray[Any], labels: NDArray[Any], k: int) -> int:
    """Return how many rows of ``scores`` (N x classes) have the label among their k largest."""
    return int(hits(scores, labels, k).sum())


def hits(scores: NDArray[Any], labels: NDArray[Any], k: int) -> NDArray[np.bool_]:
    """Return for each row of ``scores`` (N x classes) whether the label is among its k largest.

    Equal scores rank by class index, as in pytest_mlms.pipeline.top_k, so that a constant output
    earns nothing.
    """
    own = np.take_along_axis(scores, labels[:, None].astype(np.intp), axis=1)
    before = np.arange(scores.shape[1]) < labels[:, None]
    rank = ((scores > own) | ((scores == own) & before)).sum(axis=1)
    return np.asarray(rank < k)


def estimate_accuracy(scores: NDArray[Any], labels: NDArray[Any]) -> dict[str, Estimate]:
    """Return top1, and top5 where there are more than five classes, with their Wilson intervals
    over the inputs.
    """
    count = len(labels)
    found = {}
    for k in (1, 5) if scores.shape[1] > 5 else (1,):
        hits = count_hits(scores, labels, k)
        low, high = wilson_interval(hits, count)
        found[f"top{k}"] = Estimate(hits / count, low, high, 0.95, count, "inputs")
    return found
