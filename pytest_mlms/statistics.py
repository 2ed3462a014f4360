"""Estimates and their intervals: pure functions, each with its source. scipy gives the quantiles."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev

from scipy.special import ndtri, stdtrit

__all__ = ["is_steady", "samples_for_percentile", "student_interval", "wilson_interval"]


def wilson_interval(hits: int, count: int, confidence: float = 0.95) -> tuple[float, float]:
    """Return the score interval of a proportion: the shares for which ``hits`` of ``count`` are not unlikely.

    Wilson 1927, Journal of the American Statistical Association 22:209. Unlike the normal approximation it stays
    within 0 and 1, and is of use at 0 and at ``count`` hits.
    """
    z = float(ndtri(0.5 + confidence / 2))
    centre = (hits + z * z / 2) / (count + z * z)
    half = z / (count + z * z) * math.sqrt(hits * (count - hits) / count + z * z / 4)
    low = 0.0 if hits == 0 else max(0.0, centre - half)
    high = 1.0 if hits == count else min(1.0, centre + half)
    return low, high


def student_interval(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float]:
    """Return Student's interval (1908, Biometrika 6:1) of the mean of replicates; unbounded above for a single one.

    The replicates are processes, since calls within one are not independent (Kalibera and Jones 2013, "Rigorous
    benchmarking in reasonable time"). What is measured here is never negative, so neither is the lower end.
    """
    if len(values) < 2:
        return 0.0, math.inf
    half = float(stdtrit(len(values) - 1, 0.5 + confidence / 2)) * stdev(values) / math.sqrt(len(values))
    return max(0.0, fmean(values) - half), fmean(values) + half


def samples_for_percentile(percentile: float, confidence: float = 0.95) -> int:
    """Return how many samples have their largest at or above the ``percentile`` (0 to 100) with this confidence.

    1 - q^n >= confidence, the distribution-free bound by order statistics (David and Nagaraja 2003, 7.1): 29 for
    the 90th, 59 for the 95th, 299 for the 99th. With fewer there is no upper bound at all.
    """
    return math.ceil(math.log(1 - confidence) / math.log(percentile / 100))


def is_steady(medians: Sequence[float], fall: float = 0.02) -> bool:
    """Return whether the last window's median is no more than the share ``fall`` below the one before it."""
    return len(medians) > 1 and medians[-1] >= (1 - fall) * medians[-2]
