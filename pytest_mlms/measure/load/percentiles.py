"""Percentiles of latencies: by LoadGen's definition, and interpolated."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

LOADGEN_SHARES = (0.5, 0.9, 0.95, 0.97, 0.99, 0.999)
"""The percentiles in LoadGen's log, as shares."""


class PercentilePair(NamedTuple):
    """A percentile by both definitions, in the unit of its values."""

    loadgen: float
    interpolated: float


def loadgen_percentile(ordered: NDArray[np.int64], share: float) -> int:
    """Return LoadGen's percentile of values in ascending order: the one at floor(n p).

    results.cc of mlcommons/inference. It is one of the values, and the largest for small n.
    """
    return int(ordered[int(len(ordered) * share)])


def percentile_pair(ordered: NDArray[np.int64], share: float) -> PercentilePair:
    """Return a percentile of values in ascending order by both definitions.

    Ours interpolates linearly between the two nearest values (numpy's default, type 7 of Hyndman
    and Fan 1996, The American Statistician 50:361).
    """
    interpolated = float(np.quantile(ordered, share))
    return PercentilePair(loadgen_percentile(ordered, share), interpolated)
