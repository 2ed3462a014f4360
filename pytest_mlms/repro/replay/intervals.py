"""Student's interval of a mean, of logarithms for ratios."""

import math
from typing import NamedTuple, Sequence

_QUANTILES = (
    *(63.657, 9.925, 5.841, 4.604, 4.032, 3.707, 3.499, 3.355, 3.250, 3.169),
    *(3.106, 3.055, 3.012, 2.977, 2.947, 2.921, 2.898, 2.878, 2.861, 2.845),
    *(2.831, 2.819, 2.807, 2.797, 2.787, 2.779, 2.771, 2.763, 2.756, 2.750),
)
"""Quantiles of Student's t at 0.995 for 1 to 30 degrees of freedom.

From NIST/SEMATECH, e-Handbook of Statistical Methods, 1.3.6.7.2
(https://www.itl.nist.gov/div898/handbook/eda/section3/eda3672.htm).
"""

CONFIDENCE = 0.99


class Interval(NamedTuple):
    """A mean with its interval of 99 %; infinite where there is one value only."""

    mean: float
    low: float
    high: float


def student_interval(values: Sequence[float]) -> Interval:
    """Return the mean of values, and Student's interval of 99 %."""
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
