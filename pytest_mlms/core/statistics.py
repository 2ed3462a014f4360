"""Estimates, intervals and tests: pure functions, each with its source.

Quantiles are scipy.special's, which scipy imports when one is first asked for.
scipy.stats has some of the same methods, but importing it takes longer than everything else that a
run imports.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from statistics import NormalDist, fmean, stdev
from typing import NamedTuple

import numpy as np
import scipy

from pytest_mlms.core.arrays import Array

__all__ = [
    "Interval",
    "PercentilePair",
    "Pooled",
    "binomial_bounds",
    "change_points",
    "fisher_probability",
    "is_steady",
    "largest_loss",
    "middle_of_change",
    "percentile_interval",
    "persistence",
    "pool_rounds",
    "rate_interval",
    "ratio_of_means",
    "samples_for_percentile",
    "signed_rank",
    "student_interval",
    "student_quantile",
    "theil_sen",
    "theil_sen_interval",
    "weighted_percentile",
    "wilson_interval",
]

Values = Sequence[float]

_MOST_COUNTED = 30
"""Observations up to which the distribution of signed ranks is counted out.

The normal approximation beyond is good to three digits.
"""
_BISECTIONS = 40  # to 1e-12
_LEAST_LEVEL = 5  # values of a level
_PENALTY = 15  # of a change of level
_NORMAL_DEVIATION = 1.4826  # standard deviation of a normal distribution over its median one


class PercentilePair(NamedTuple):
    """A percentile by both definitions, in the unit of its values."""

    loadgen: float
    interpolated: float


class Interval(NamedTuple):
    """A confidence interval."""

    low: float
    high: float


class Centre(NamedTuple):
    """An estimate of the centre of a distribution, and its interval."""

    value: float
    low: float
    high: float


class LogRatio(NamedTuple):
    """The logarithm of a ratio, and its standard error."""

    value: float
    error: float


def _upper(confidence: float) -> float:
    """Return the probability below the upper end of a two-sided interval."""
    return 0.5 + confidence / 2


def _normal_quantile(confidence: float) -> float:
    """Return how many standard errors a two-sided interval reaches to each side."""
    return NormalDist().inv_cdf(_upper(confidence))


def _error_of_mean(values: Values) -> float:
    """Return the standard error of the mean of two or more values."""
    return stdev(values) / math.sqrt(len(values))


def wilson_interval(hits: int, count: int, confidence: float = 0.95) -> Interval:
    """Return the score interval of a proportion, given ``hits`` of ``count``.

    Wilson 1927, Journal of the American Statistical Association 22:209. Unlike the normal
    approximation it stays within 0 and 1, and is of use at 0 and at ``count`` hits.
    """
    z = _normal_quantile(confidence)
    square = z * z
    misses = count - hits
    total = count + square
    centre = (hits + square / 2) / total
    variance = hits * misses / count + square / 4
    half = z / total * math.sqrt(variance)
    low = max(0.0, centre - half)
    high = min(1.0, centre + half)
    if hits == 0:
        low = 0.0
    if hits == count:
        high = 1.0
    return Interval(low, high)


def student_interval(values: Values, confidence: float = 0.95) -> Interval:
    """Return Student's interval (1908, Biometrika 6:1) of the mean of replicates.

    A single replicate has no upper bound. The replicates are processes, since calls within one are
    not independent (Kalibera and Jones 2013, "Rigorous benchmarking in reasonable time"). What is
    measured here is never negative, so neither is the lower end.
    """
    count = len(values)
    if count < 2:
        return Interval(0.0, math.inf)
    quantile = student_quantile(count - 1, _upper(confidence))
    half = quantile * _error_of_mean(values)
    mean = fmean(values)
    low = max(0.0, mean - half)
    return Interval(low, mean + half)


def rate_interval(seconds: Values, confidence: float = 0.95) -> Interval:
    """Return the interval of 1 / mean of replicates' ``seconds`` for the same work.

    A single replicate has no upper bound. Student's on the scale of logarithms, where a rate and
    its duration are alike: the standard error of log(mean) is the mean's standard error over the
    mean (Oehlert 1992, "A note on the delta method", The American Statistician 46:27). On the scale
    of the rate one stalled process takes the lower end to 0, and on that of the duration, turned
    over, the upper end to infinity. All three hold 95 % where log-normal processes differ by 10 %
    or less; of 3, 6 or 12 that differ by 40 %, this one holds in 94.0 to 94.5 % of cases, and both
    of the others in 92.7 to 93.3 %.
    """
    count = len(seconds)
    if count < 2:
        return Interval(0.0, math.inf)
    mean = fmean(seconds)
    error = _error_of_mean(seconds) / mean
    quantile = student_quantile(count - 1, _upper(confidence))
    factor = math.exp(quantile * error)
    rate = 1 / mean
    return Interval(rate / factor, rate * factor)


@lru_cache(maxsize=1024)
def student_quantile(freedom: float, probability: float) -> float:
    """Return the value that Student's t stays below with this probability."""
    return float(scipy.special.stdtrit(freedom, probability))


def samples_for_percentile(percentile: float, confidence: float = 0.95) -> int:
    """Return how many samples bound the ``percentile`` (0 to 100) from above.

    The largest of so many samples is at or above the percentile with this confidence: 1 - q^n >=
    confidence, the distribution-free bound by order statistics (David and Nagaraja 2003, 7.1). It
    is 29 for the 90th, 59 for the 95th, 299 for the 99th. With fewer there is no upper bound at
    all.
    """
    risk = 1 - confidence
    share = percentile / 100
    samples = math.log(risk) / math.log(share)
    return math.ceil(samples)


def percentile_interval(values: Array, percent: float, confidence: float = 0.95) -> Interval:
    """Return the interval of a percentile (0 to 100) of independent values that are never negative.

    Its ends are two of the values, by rank: how many are below the percentile is binomial, whatever
    their distribution (David and Nagaraja 2003, Order Statistics, 7.1; MLPerf's LoadGen stops early
    by the same bound). Where even the largest may be below the percentile, there is no upper end.
    """
    count = len(values)
    tail = (1 - confidence) / 2
    below = _binomial_quantile(tail, count, percent / 100)
    above = _binomial_quantile(1 - tail, count, percent / 100)
    ordered = np.sort(values)
    low = float(ordered[below - 1]) if below else 0.0
    high = float(ordered[above]) if above < count else math.inf
    return Interval(low, high)


def _binomial_quantile(probability: float, count: int, share: float) -> int:
    """Return the least number of hits with at least this probability of no more hits."""
    hits = math.ceil(float(scipy.special.bdtrik(probability, count, share)))
    fewer = max(0, hits - 1)
    if scipy.special.bdtr(fewer, count, share) >= probability:
        return fewer
    return hits


def theil_sen(x: Array, y: Array) -> float:
    """Return the median slope of all pairs of points (Sen 1968, JASA 63:1379); ``x`` rises."""
    return float(np.median(_slopes_of_pairs(x, y)))


def theil_sen_interval(x: Array, y: Array, confidence: float) -> Interval:
    """Return the interval of Theil and Sen's slope, by the same source; points are independent."""
    slopes = np.sort(_slopes_of_pairs(x, y))
    count = len(x)
    deviation = math.sqrt(count * (count - 1) * (2 * count + 5) / 18)
    inside = _normal_quantile(confidence) * deviation
    outside = max(0, math.floor((len(slopes) - inside) / 2))
    return Interval(float(slopes[outside]), float(slopes[-1 - outside]))


def _slopes_of_pairs(x: Array, y: Array) -> Array:
    first, second = np.triu_indices(len(x), k=1)
    return np.asarray((y[second] - y[first]) / (x[second] - x[first]))


def is_steady(medians: Values, fall: float = 0.02) -> bool:
    """Return whether the last window's median is at most the share ``fall`` below the one before.

    A single window is never steady.
    """
    if len(medians) < 2:
        return False
    before, last = medians[-2:]
    return last >= (1 - fall) * before


def middle_of_change(values: Array, risk: float = 0.01) -> int:
    """Return how many values are before the middle of a change, however slow; 0 without a change.

    Pettitt 1979, Applied Statistics 28:126: where the ranks of the values before differ most from
    those after. It has more power than a search for levels where values change slowly, and tells
    one change only. ``risk`` is the probability of a change where values are independent, by his
    approximation from above.
    """
    count = len(values)
    if count < 2:
        return 0
    _, ordinal, ties = np.unique(values, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(ties) - (ties - 1) / 2)[ordinal]
    before = np.arange(1, count)
    scores = np.abs(2 * np.cumsum(ranks)[:-1] - before * (count + 1))
    index = int(np.argmax(scores))
    exponent = 6 * float(scores[index]) ** 2 / (count**3 + count**2)
    return index + 1 if 2 * math.exp(-exponent) < risk else 0


def change_points(values: Array, floor: float = 0.0) -> list[int]:
    """Return the places where values change to another level, in order.

    Optimal partitioning (Jackson and others 2005, IEEE Signal Processing Letters 12:105): of all
    divisions into levels, the one with the least sum of squares plus a penalty for each level. The
    penalty is 15 log n times the variance, which Barrett and others found for the iterations of
    virtual machines (2017, OOPSLA, 4.1). The variance is that of neighbours' differences, by their
    median deviation, and at least that of ``floor``. Up to four outliers in a row are no level:
    values are first cut to 3 deviations from the running median of nine.
    """
    if len(values) < 2 * _LEAST_LEVEL:
        return []
    differences = np.diff(values)
    deviations = np.abs(differences - np.median(differences))
    deviation_of_neighbours = _NORMAL_DEVIATION * float(np.median(deviations)) / math.sqrt(2)
    deviation = max(floor, deviation_of_neighbours)
    if deviation == 0:
        deviation = float(np.ptp(values)) or 1.0
    # Values are cut to so much from their running median.
    most = 3 * deviation
    padded = np.pad(values, _LEAST_LEVEL - 1, mode="symmetric")
    windows = np.lib.stride_tricks.sliding_window_view(padded, 2 * _LEAST_LEVEL - 1)
    medians = np.median(windows, axis=1)
    cut = np.asarray(np.clip(values, medians - most, medians + most))
    last = _partition((cut - cut.mean()) / deviation)
    found = []
    begin = int(last[-1])
    while begin:
        found.append(begin)
        begin = int(last[begin])
    return found[::-1]


def _partition(data: Array) -> Array:
    """Return where the last level begins in the best division of the first 0, 1, 2… values.

    The deviation of the values is 1.
    """
    count = len(data)
    penalty = _PENALTY * math.log(count)
    sums = np.concatenate([[0.0], np.cumsum(data)])
    squares = np.concatenate([[0.0], np.cumsum(data**2)])
    last = np.zeros(count + 1, int)
    least = np.full(count + 1, math.inf)  # the cost of the best division
    least[0] = 0.0
    for end in range(_LEAST_LEVEL, count + 1):
        begins = np.arange(end - _LEAST_LEVEL + 1)
        within = squares[end] - squares[begins]
        within -= (sums[end] - sums[begins]) ** 2 / (end - begins)
        costs = least[begins] + within + penalty
        last[end] = np.argmin(costs)
        least[end] = costs[last[end]]
    return last


def weighted_percentile(values: Array, weights: Array, percent: float) -> float:
    """Return the percentile (0 to 100) of values that stand for as much as their weights say.

    Each value is at the middle of its weight, and what is between two is interpolated.
    """
    order = np.argsort(values, axis=None)
    share = weights.ravel()[order]
    places = (np.cumsum(share) - share / 2) / share.sum()
    return float(np.interp(percent / 100, places, values.ravel()[order]))


def fisher_probability(
    hits_a: int, count_a: int, hits_b: int, count_b: int, odds: float = 1.0
) -> float:
    """Return the probability that B has so many hits or more, by chance.

    Fisher's exact test (1935, The Design of Experiments), one-sided; with ``odds`` above 1, B may
    have as many more of them: the hits of B are then of the noncentral hypergeometric distribution.
    """
    hits = hits_a + hits_b
    possible = np.arange(max(0, hits - count_a), min(hits, count_b) + 1)
    gammaln = scipy.special.gammaln
    logs = (
        gammaln(count_b + 1)
        - gammaln(possible + 1)
        - gammaln(count_b - possible + 1)
        + gammaln(count_a + 1)
        - gammaln(hits - possible + 1)
        - gammaln(count_a - hits + possible + 1)
        + possible * math.log(odds)
    )
    weights = np.exp(logs - logs.max())
    return float(weights[possible >= hits_b].sum() / weights.sum())


def signed_rank(values: Values | Array, confidence: float = 0.95) -> Centre:
    """Return the Hodges-Lehmann estimate of the centre, and its interval.

    The estimate is the median of the averages of all pairs of values, each with itself too (Hodges
    and Lehmann 1963, Annals of Mathematical Statistics 34:598). The interval belongs to Wilcoxon's
    signed-rank test: its ends are the averages that the test would just not reject (Hollander,
    Wolfe and Chicken 2014, Nonparametric Statistical Methods, 3.2 and 3.3). It is unbounded where
    even all values on one side say too little: for fewer than 6 at 95 %. N values take N * N / 2
    numbers of memory.
    """
    data = np.asarray(values, float)
    first, second = np.triu_indices(len(data))
    sums = data[first] + data[second]
    averages = np.sort(sums / 2)
    value = float(np.median(averages))
    tail = (1 - confidence) / 2
    rank = _signed_rank_quantile(len(data), tail)
    if rank == 0:
        return Centre(value, -math.inf, math.inf)
    low = float(averages[rank - 1])
    high = float(averages[-rank])
    return Centre(value, low, high)


@lru_cache(maxsize=64)
def _signed_rank_quantile(count: int, tail: float) -> int:
    """Return the smallest k with P(T <= k) >= ``tail`` for Wilcoxon's T of ``count`` values."""
    if count > _MOST_COUNTED:
        product = count * (count + 1)
        mean = product / 4
        variance = product * (2 * count + 1) / 24
        z = NormalDist().inv_cdf(tail)
        quantile = mean + z * math.sqrt(variance)
        return max(0, math.floor(quantile))
    ways = np.ones(1)  # by the sum of ranks: how many sets of ranks have it
    for rank in range(1, count + 1):
        absent = np.zeros(rank)
        without_rank = np.concatenate([ways, absent])
        with_rank = np.concatenate([absent, ways])
        ways = without_rank + with_rank
    probabilities = np.cumsum(ways) / 2**count
    return int(np.searchsorted(probabilities, tail))


class Pooled(NamedTuple):
    """Mean over rounds, its standard error, and the degrees of freedom of that error."""

    mean: float
    error: float
    freedom: float

    def below(self, risk: float) -> float:
        """Return the lower end of an interval: the truth is below it with probability ``risk``."""
        quantile = student_quantile(self.freedom, 1 - risk)
        return self.mean - quantile * self.error

    def above(self, risk: float) -> float:
        """Return the upper end of an interval: the truth is above it with probability ``risk``."""
        quantile = student_quantile(self.freedom, 1 - risk)
        return self.mean + quantile * self.error


def pool_rounds(values: Values, trimmed: int = 0) -> Pooled:
    """Return the mean over rounds of fresh processes, without the ``trimmed`` least and largest.

    At least two values must be left; of a single round nothing is known of the error, which is then
    infinite. Without trimming it is Student's mean (1908, Biometrika 6:1). The error of a trimmed
    one is that of Tukey and McLaughlin (1963, Sankhya A 25:331): the values that are left out count
    as the nearest ones that are not, and the degrees of freedom are those of what is left. So many
    wrong rounds on either side change neither much.
    """
    if len(values) == 1:
        return Pooled(values[0], math.inf, 1)
    ordered = sorted(values)
    kept = ordered[trimmed : len(ordered) - trimmed]
    left_out = trimmed * [kept[0], kept[-1]]
    winsorized = kept + left_out
    centre = fmean(winsorized)
    squares = math.fsum((value - centre) ** 2 for value in winsorized)
    freedom = len(kept) - 1
    return Pooled(fmean(kept), math.sqrt(squares / len(kept) / freedom), freedom)


def persistence(values: Array) -> float:
    """Return the factor by which a standard error grows where neighbours in time are alike.

    sqrt((1 + r) / (1 - r)) for a first-order process with the correlation r of neighbours' ranks
    (Bayley and Hammersley 1946, Supplement to the Journal of the Royal Statistical Society 8:184).
    It is 1 where they aren't alike.
    """
    count = len(values)
    if count < 3 or np.ptp(values) == 0:
        return 1.0
    ranks = values.argsort().argsort()
    centred = ranks - (count - 1) / 2
    later = centred[1:]
    earlier = centred[:-1]
    covariance = (later * earlier).sum()
    variance = (centred**2).sum()
    correlation = float(covariance / variance)
    noise = 2 / math.sqrt(count)  # chance gives more one time of forty
    if correlation <= noise:
        return 1.0
    correlation = min(correlation, 0.99)
    return math.sqrt((1 + correlation) / (1 - correlation))


def ratio_of_means(above: Array, below: Array) -> LogRatio:
    """Return log(mean ``above`` / mean ``below``), for values measured in pairs.

    By linearisation (Cochran 1977, Sampling Techniques, 6.3): the variance of above/mean -
    below/mean over pairs.
    """
    mean_above = float(above.mean())
    mean_below = float(below.mean())
    value = math.log(mean_above / mean_below)
    if len(above) < 2:
        return LogRatio(value, math.inf)
    linear = above / mean_above - below / mean_below
    deviation = float(linear.std(ddof=1))
    return LogRatio(value, deviation / math.sqrt(len(above)))


def largest_loss(lost: int, won: int, count: int, risk: float) -> float:
    """Return the upper bound of the share of answers lost minus won, over the same inputs.

    The true difference is above it with a probability of ``risk`` at most. That is Tango's score
    bound (1998, Statistics in Medicine 17:891) or, where that is larger, the binomial bound of the
    losses alone (Clopper and Pearson 1934), since the score is too bold where little changed.
    Without losses, gains and other changes it is the exact 1 - risk ** (1 / count).
    """
    low = (lost - won) / count
    high = 1.0
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        if _probability_of_less_loss(lost, won, count, middle) > risk:
            low = middle
        else:
            high = middle
    return high


def _probability_of_less_loss(lost: int, won: int, count: int, difference: float) -> float:
    """Return the probability of a result at most this bad where the true difference is this."""
    by_score = float(scipy.special.ndtr(_tango_score(lost, won, count, difference)))
    share = difference + won / count
    if share <= 0:
        return 1.0
    by_losses = float(scipy.special.bdtr(lost, count, share)) if share < 1 else 0.0
    return max(by_score, by_losses)


def _tango_score(lost: int, won: int, count: int, difference: float) -> float:
    """Return Tango's score statistic of lost - won, for a true difference of their shares."""
    a = 2 * count
    b = (a - lost + won) * difference - lost - won
    c = -won * difference * (1 - difference)
    share_won = (math.sqrt(max(0.0, b * b - 4 * a * c)) - b) / (2 * a)
    variance = count * (2 * share_won + difference * (1 - difference))
    excess = lost - won - count * difference
    if variance <= 0:
        return math.copysign(math.inf, excess) if excess else 0.0
    return excess / math.sqrt(variance)


def binomial_bounds(hits: float, count: float, below: float, above: float) -> Interval:
    """Return bounds of a share, which is outside with these risks at most.

    They are exact (Clopper and Pearson 1934, Biometrika 26:404).
    """
    inverse = scipy.special.betaincinv
    low = float(inverse(hits, count - hits + 1, below)) if hits else 0.0
    high = float(inverse(hits + 1, count - hits, 1 - above)) if hits < count else 1.0
    return Interval(low, high)
