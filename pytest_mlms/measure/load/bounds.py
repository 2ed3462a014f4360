"""Bounds of a percentile whose sides of a limit are LoadGen's verdicts."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pytest_mlms.measure.load.early_stopping import fails, most_over
from pytest_mlms.measure.load.percentiles import loadgen_percentile


class Bounds(NamedTuple):
    """LoadGen's percentile with its bounds, in the unit of the values.

    A limit at or above ``high`` is met by LoadGen's rule, and one below ``low`` is shown to be
    broken. ``high`` is infinite where there are too few values to meet any limit.
    """

    low: float
    value: float
    high: float
    queries: int


def bounds_of(values: NDArray[np.int64], share: float) -> Bounds:
    """Return the bounds of a percentile of one value or more."""
    ordered = np.sort(values)
    count = len(ordered)
    allowed = most_over(count, share)
    high = math.inf if allowed < 0 else float(ordered[count - 1 - allowed])
    failing = _least_failing(count, share)
    low = 0.0 if failing > count else float(ordered[count - failing])
    return Bounds(low, float(loadgen_percentile(ordered, share)), high, count)


def _least_failing(count: int, share: float) -> int:
    """Return how many values over a limit show that it is broken; more than there are if none."""
    low = 0
    high = count + 1
    while high - low > 1:
        middle = (low + high) // 2
        if fails(count, middle, share):
            high = middle
        else:
            low = middle
    return high


def worst_of(bounds: list[Bounds]) -> Bounds:
    """Return the bounds for all of several processes: a limit is met where each one meets it."""
    return Bounds(
        low=max(each.low for each in bounds),
        value=max(each.value for each in bounds),
        high=max(each.high for each in bounds),
        queries=min(each.queries for each in bounds),
    )
