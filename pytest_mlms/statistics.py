"""Estimates and their intervals: pure functions, each with its source.

Scipy gives the quantiles.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from statistics import fmean, stdev
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtrc, chdtrc, ndtri, stdtrit

__all__ = [
    "Pooled",
    "is_steady",
    "matched_difference",
    "mcnemar",
    "persistence",
    "pool_rounds",
    "quantile_ratio",
    "rate_interval",
    "ratio_of_means",
    "samples_for_percentile",
    "signed_rank",
    "student_interval",
    "student_quantile",
    "wilson_interval",
]

Array = NDArray[Any]

# observations up to which the signed-rank distribution is counted out; beyond, normal to three
# digits
_EXACT = 30
_CONTRADICTED, _DOUBTED = (
    0.01,
    2,
)  # the chance at which rounds contradict their prior, and its weight then
_RESAMPLES = 200  # for a standard error; Efron and Tibshirani 1993, 6.4: 50 to 200 suffice


def wilson_interval(hits: int, count: int, confidence: float = 0.95) -> tuple[float, float]:
    """Return the score interval of a proportion: the shares for which ``hits`` of ``count`` are not
    unlikely.

    Wilson 1927, Journal of the American Statistical Association 22:209. Unlike the normal
    approximation it stays within 0 and 1, and is of use at 0 and at ``count`` hits.
    """
    z = float(ndtri(0.5 + confidence / 2))
    centre = (hits + z * z / 2) / (count + z * z)
    half = z / (count + z * z) * math.sqrt(hits * (count - hits) / count + z * z / 4)
    low = 0.0 if hits == 0 else max(0.0, centre - half)
    high = 1.0 if hits == count else min(1.0, centre + half)
    return low, high


def student_interval(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float]:
    """Return Student's interval (1908, Biometrika 6:1) of the mean of replicates; unbounded above
    for a single one.

    The replicates are processes, since calls within one are not independent (Kalibera and Jones
    2013, "Rigorous benchmarking in reasonable time"). What is measured here is never negative, so
    neither is the lower end.
    """
    if len(values) < 2:
        return 0.0, math.inf
    half = (
        float(stdtrit(len(values) - 1, 0.5 + confidence / 2))
        * stdev(values)
        / math.sqrt(len(values))
    )
    return max(0.0, fmean(values) - half), fmean(values) + half


def rate_interval(seconds: Sequence[float], confidence: float = 0.95) -> tuple[float, float]:
    """Return the interval of 1 / mean of replicates' ``seconds`` for the same work; unbounded above
    for a single one.

    Student's on the scale of logarithms, where a rate and its duration are alike: the standard
    error of log(mean) is that of the mean over the mean (Oehlert 1992, "A note on the delta
    method", The American Statistician 46:27). On the scale of the rate one stalled process takes
    the lower end to 0, and on that of the duration, turned over, the upper end to infinity. All
    three hold 95 % where log-normal processes differ by 10 % or less; of 3, 6 or 12 that differ by
    40 %, this one holds in 94.0 to 94.5 % of cases, and both of the others in 92.7 to 93.3 %.
    """
    if len(seconds) < 2:
        return 0.0, math.inf
    error = stdev(seconds) / fmean(seconds) / math.sqrt(len(seconds))
    factor = math.exp(student_quantile(len(seconds) - 1, 0.5 + confidence / 2) * error)
    return 1 / fmean(seconds) / factor, 1 / fmean(seconds) * factor


def student_quantile(freedom: float, probability: float) -> float:
    """Return the value that Student's t stays below with this probability."""
    return float(stdtrit(freedom, probability))


def samples_for_percentile(percentile: float, confidence: float = 0.95) -> int:
    """Return how many samples have their largest at or above the ``percentile`` (0 to 100) with
    this confidence.

    1 - q^n >= confidence, the distribution-free bound by order statistics (David and Nagaraja 2003,
    7.1): 29 for the 90th, 59 for the 95th, 299 for the 99th. With fewer there is no upper bound at
    all.
    """
    return math.ceil(math.log(1 - confidence) / math.log(percentile / 100))


def is_steady(medians: Sequence[float], fall: float = 0.02) -> bool:
    """Return whether the last window's median is no more than the share ``fall`` below the one
    before it.
    """
    return len(medians) > 1 and medians[-1] >= (1 - fall) * medians[-2]


def signed_rank(
    values: Sequence[float] | Array, confidence: float = 0.95
) -> tuple[float, float, float]:
    """Return the Hodges-Lehmann estimate of the centre, and the interval that belongs to Wilcoxon's
    signed-rank test.

    The median of the averages of all pairs of values, each with itself too (Hodges and Lehmann
    1963, Annals of Mathematical Statistics 34:598), and the averages that the test would just not
    reject (Hollander, Wolfe and Chicken 2014, Nonparametric Statistical Methods, 3.2 and 3.3).
    Unbounded where even all values on one side say too little: for fewer than 6 at 95 %. N values
    take N * N / 2 numbers of memory.
    """
    data = np.asarray(values, float)
    first, second = np.triu_indices(len(data))
    averages = np.sort((data[first] + data[second]) / 2)
    centre = float(np.median(averages))
    rank = _signed_rank_quantile(len(data), (1 - confidence) / 2)
    if rank == 0:
        return centre, -math.inf, math.inf
    return centre, float(averages[rank - 1]), float(averages[-rank])


@lru_cache(maxsize=64)
def _signed_rank_quantile(count: int, tail: float) -> int:
    """Return the smallest k with P(T <= k) >= ``tail`` for Wilcoxon's T of ``count`` values.

    Counted, or normal.
    """
    if count > _EXACT:
        mean, variance = count * (count + 1) / 4, count * (count + 1) * (2 * count + 1) / 24
        return max(0, math.floor(mean + float(ndtri(tail)) * math.sqrt(variance)))
    ways = np.ones(1)
    for rank in range(1, count + 1):  # each rank is in the sum or not
        ways = np.concatenate([ways, np.zeros(rank)]) + np.concatenate([np.zeros(rank), ways])
    return int(np.searchsorted(np.cumsum(ways) / 2**count, tail))


class Pooled(NamedTuple):
    """What rounds say together.

    The mean, its standard error, and the degrees of freedom of that.
    """

    mean: float
    error: float
    freedom: float

    def below(self, risk: float) -> float:
        """Return the value that the truth lies below with probability ``risk`` only.

        The lower end of an interval.
        """
        return self.mean - student_quantile(self.freedom, 1 - risk) * self.error

    def above(self, risk: float) -> float:
        """Return the value that the truth lies above with probability ``risk`` only.

        The upper end.
        """
        return self.mean + student_quantile(self.freedom, 1 - risk) * self.error


def pool_rounds(
    values: Sequence[float], errors: Sequence[float], spread: float = 0.004, weight: float = 8
) -> Pooled | None:
    """Return the mean over rounds of fresh processes, weighted by what each knows; None where none
    knows anything.

    Each round has a standard error of its own, and rounds differ by more than that, as processes
    lay out memory anew: ``spread`` is that difference as it was found before, and counts like
    ``weight`` rounds; the rounds' own scatter (Cochran's Q, 1954, Biometrics 10:101) can raise it
    and never lower it. A random-effects mean with a prior on the variance (Higgins et al. 2009,
    Journal of the Royal Statistical Society A 172:137). Rounds that scatter as they would once in a
    hundred times if the prior were true contradict it: then it is the plain mean, and their own
    deviation, held for that of two rounds more than there are: of two alone Student's quantiles
    would say nothing.
    """
    known = [
        (value, error) for value, error in zip(values, errors, strict=True) if math.isfinite(error)
    ]
    if not known:
        return None
    weights = [1 / (error**2 + spread**2) for _, error in known]
    mean = math.fsum(w * value for w, (value, _) in zip(weights, known, strict=True)) / math.fsum(
        weights
    )
    scatter = math.fsum(
        w * (value - mean) ** 2 for w, (value, _) in zip(weights, known, strict=True)
    )
    if len(known) > 1 and chdtrc(len(known) - 1, scatter) < _CONTRADICTED:
        alone = [value for value, _ in known]
        return Pooled(fmean(alone), stdev(alone) / math.sqrt(len(alone)), len(alone) - 1 + _DOUBTED)
    freedom = weight + len(known) - 1
    inflation = max(1.0, (weight + scatter) / freedom)
    return Pooled(mean, math.sqrt(inflation / math.fsum(weights)), freedom)


def persistence(values: Array) -> float:
    """Return by how much a standard error grows since neighbours in time are alike: 1 where they
    aren't.

    sqrt((1 + r) / (1 - r)) for a first-order process with the correlation r of neighbours' ranks
    (Bayley and Hammersley 1946, Supplement to the Journal of the Royal Statistical Society 8:184).
    """
    if len(values) < 3 or np.ptp(values) == 0:
        return 1.0
    ranks = values.argsort().argsort() - (len(values) - 1) / 2
    alike = float((ranks[1:] * ranks[:-1]).sum() / (ranks**2).sum())
    noise = 2 / math.sqrt(len(values))  # what chance gives one time of forty
    alike = min(alike, 0.99) if alike > noise else 0.0
    return math.sqrt((1 + alike) / (1 - alike))


def ratio_of_means(above: Array, below: Array) -> tuple[float, float]:
    """Return log(mean ``above`` / mean ``below``) and its standard error, for values measured in
    pairs.

    By linearisation (Cochran 1977, Sampling Techniques, 6.3): the variance of above/mean -
    below/mean over pairs.
    """
    value = math.log(float(above.mean()) / float(below.mean()))
    if len(above) < 2:
        return value, math.inf
    return value, float((above / above.mean() - below / below.mean()).std(ddof=1)) / math.sqrt(
        len(above)
    )


def quantile_ratio(
    above: Array, below: Array, percent: float, seed: int = 0
) -> tuple[float, float]:
    """Return log of the ratio of two percentiles and its standard error, for tables of pairs x
    calls.

    The error is the bootstrap's over pairs (Efron and Tibshirani 1993, An Introduction to the
    Bootstrap, 6.2).
    """

    def ratio(chosen: Any) -> float:
        return math.log(
            float(np.percentile(above[chosen], percent))
            / float(np.percentile(below[chosen], percent))
        )

    rng, count = np.random.default_rng(seed), len(above)
    again: Callable[[], float] = lambda: ratio(rng.integers(count, size=count))  # noqa: E731
    return ratio(slice(None)), float(np.std([again() for _ in range(_RESAMPLES)], ddof=1))


def mcnemar(lost: int, won: int) -> float:
    """Return how likely at least ``lost`` of the changed answers are losses if losses and gains are
    equally likely.

    McNemar's test (1947, Psychometrika 12:153), exact and one-sided: the answers that both sides
    have right or wrong say nothing. 1.0 where nothing changed.
    """
    return 1.0 if lost == 0 else float(bdtrc(lost - 1, lost + won, 0.5))


def matched_difference(
    lost: int, won: int, count: int, confidence: float = 0.95
) -> tuple[float, float]:
    """Return the interval of (won - lost) / count, a difference of shares over the same inputs.

    Wald's with half an observation added to each of the four cells (Agresti and Min 2005,
    Statistics in Medicine 24:729), which covers as it says also where little changed.
    """
    z = float(ndtri(0.5 + confidence / 2))
    change, total = won - lost, count + 2
    half = z * math.sqrt(lost + won + 1 - change**2 / total) / total
    return max(-1.0, change / total - half), min(1.0, change / total + half)
