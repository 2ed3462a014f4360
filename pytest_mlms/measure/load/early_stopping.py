"""LoadGen's early stopping: how many queries a percentile takes, and what they then say.

The rules of early_stopping.cc and results.cc of mlcommons/inference, version 6.0.17, with their
confidence of 99 % and tolerance of 0. They take queries to be independent. Those of a queue are
not, so the confidence is LoadGen's, and not one that holds for each model and load.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import scipy
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


CONFIDENCE = 0.99

_ESTIMATED_OVER = 1  # queries over the limit that the estimates begin with


@lru_cache(maxsize=100_000)
def least_within(over: int, share: float) -> int:
    """Return h(t): the queries within a limit that ``over`` queries beyond it take.

    It is the least h for which h + t queries with t or fewer beyond the limit have a probability
    below 1 %, if a query is within it with the probability ``share``, such as 0.99 for p99. That
    is P[Bin(h + t, 1 - p) <= t] = I_p(h, t + 1), which falls with h.
    """
    low = 0
    high = max(1, math.ceil(over * share / (1 - share)))
    while not _is_rare(high, over, share):
        low = high
        high *= 2
    while high - low > 1:
        middle = (low + high) // 2
        if _is_rare(middle, over, share):
            high = middle
        else:
            low = middle
    return high


def _is_rare(within: int, over: int, share: float) -> bool:
    return float(scipy.special.betainc(within, over + 1, share)) < 1 - CONFIDENCE


def queries_needed(share: float) -> int:
    """Return the least number of queries for an estimate of a percentile: 662 for p99."""
    return least_within(_ESTIMATED_OVER, share) + _ESTIMATED_OVER


def most_over(queries: int, share: float) -> int:
    """Return the largest t with h(t) + t <= ``queries``; -1 where not even 0 is possible."""
    low = -1
    high = queries + 1
    while high - low > 1:
        middle = (low + high) // 2
        if least_within(middle, share) + middle <= queries:
            low = middle
        else:
            high = middle
    return low


def estimate(ordered: NDArray[np.int64], share: float) -> int | None:
    """Return LoadGen's estimate of a percentile, which SingleStream and MultiStream report.

    ``ordered`` are latencies in ascending order. The estimate is the one that t - 1 are above, for
    the t of ``most_over``; None where there are too few for it.
    """
    over = most_over(len(ordered), share)
    if over < _ESTIMATED_OVER:
        return None
    return int(ordered[len(ordered) - over])


def fails(queries: int, over: int, share: float) -> bool:
    """Return whether so many queries over the limit show that the percentile is over it.

    P[Bin(n, 1 - p) >= t] < 1 %: the rule's counterpart, which LoadGen doesn't have.
    """
    if over == 0:
        return False
    return float(scipy.special.bdtrc(over - 1, queries, 1 - share)) < 1 - CONFIDENCE


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
