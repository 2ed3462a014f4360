"""Student's interval of a mean, of logarithms for ratios."""

import math
from typing import NamedTuple, Sequence

_QUANTILES = (
    *(318.309, 22.327, 10.215, 7.173, 5.893, 5.208, 4.785, 4.501, 4.297, 4.144),
    *(4.025, 3.930, 3.852, 3.787, 3.733, 3.686, 3.646, 3.610, 3.579, 3.552),
    *(3.527, 3.505, 3.485, 3.467, 3.450, 3.435, 3.421, 3.408, 3.396, 3.385),
)
"""Quantiles of Student's t at 0.999 for 1 to 30 degrees of freedom, of scipy.stats.t.ppf.

A replay looks at the interval up to eight times, so the risk of a wrong answer is below 1 % in all
(Bonferroni).
"""


class Interval(NamedTuple):
    """A mean with its interval of 99.8 %; infinite where there is one value only."""

    mean: float
    low: float
    high: float


def student_interval(values: Sequence[float]) -> Interval:
    """Return the mean of values, and Student's interval of 99.8 %."""
    count = len(values)
    mean = sum(values) / count
    if count < 2:
        return Interval(mean, -math.inf, math.inf)
    variance = sum((value - mean) ** 2 for value in values) / (count - 1)
    quantile = _QUANTILES[min(count - 1, len(_QUANTILES)) - 1]
    half = quantile * math.sqrt(variance / count)
    return Interval(mean, mean - half, mean + half)


def ratio_interval(logs: Sequence[float]) -> Interval:
    """Return the geometric mean of ratios, given their logarithms, and its interval."""
    found = student_interval(logs)
    return Interval(*(_exp(value) for value in found))


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf
