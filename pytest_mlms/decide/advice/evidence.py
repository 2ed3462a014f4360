"""Intervals of candidates over their processes, on a scale of logarithms. All functions are pure.

A candidate has few processes, and Student's interval of three is forty times as wide as one of
thirty. So the spreads of all candidates are looked at together: each is moderated towards what the
others have, as far as these agree (Smyth 2004, "Linear models and empirical Bayes methods",
Statistical Applications in Genetics and Molecular Biology 3:3). Candidates whose spreads differ
get little from it, and each keeps its own spread where that is the larger one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

import numpy as np
import scipy

from pytest_mlms.core.statistics import student_quantile

Column = Mapping[int, float]
"""The values of a candidate by round, as logarithms."""

_LEAST_SPREAD = 1e-3
"""The least spread of processes: none are closer to each other than a thousandth."""

_STEPS = 8  # of Newton's method, which converges from one side
_LEAST_FREEDOM = 1e-6  # of a candidate: less is none, but for rounding


class Spread(NamedTuple):
    """A variance of processes, and its degrees of freedom."""

    variance: float
    freedom: float


class Range(NamedTuple):
    """A mean of logarithms, and its interval."""

    mean: float
    low: float
    high: float


class Fitted(NamedTuple):
    """The spread of each candidate within a round, and that of the rounds, which all share."""

    spreads: Sequence[Spread]
    rounds: Spread


def fit_spreads(columns: Sequence[Column]) -> Fitted:
    """Return the spreads of candidates of which each was measured in some of the rounds.

    A value is its candidate's mean, plus what its round adds to all, plus what is its own. The
    first two are fitted by least squares.
    """
    rows = [(number, turn) for number, column in enumerate(columns) for turn in column]
    if len(rows) <= len(columns):
        nothing = Spread(0.0, 0.0)
        return Fitted([nothing] * len(columns), nothing)
    turns = sorted({turn for _, turn in rows})
    of_candidate = np.array([number for number, _ in rows])
    of_turn = np.array([turns.index(turn) for _, turn in rows])
    values = np.array([columns[number][turn] for number, turn in rows])

    # A column of the design for each candidate, then one for each round but the first.
    design = np.zeros((len(rows), len(columns) + len(turns) - 1))
    design[np.arange(len(rows)), of_candidate] = 1
    later = of_turn > 0
    design[later, len(columns) + of_turn[later] - 1] = 1
    used = np.flatnonzero(design.any(axis=0))

    orthogonal, triangular = np.linalg.qr(design[:, used])
    projected = orthogonal.T @ values
    effects = np.linalg.solve(triangular, projected)
    left = values - orthogonal @ projected
    freedom = 1 - (orthogonal**2).sum(axis=1)

    own = []
    for number in range(len(columns)):
        chosen = of_candidate == number
        degrees = float(freedom[chosen].sum())
        spread = Spread(0.0, 0.0)
        if degrees > _LEAST_FREEDOM:
            squares = float((left[chosen] ** 2).sum())
            spread = Spread(squares / degrees, degrees)
        own.append(spread)

    measured = np.count_nonzero(used < len(columns))
    of_rounds = np.concatenate([[0.0], effects[measured:]])
    between = float(np.var(of_rounds, ddof=1)) if len(of_rounds) > 1 else 0.0
    return Fitted(_moderated(own), Spread(between, len(of_rounds) - 1.0))


def _moderated(own: Sequence[Spread]) -> list[Spread]:
    """Return spreads as they are to be expected, given those of all candidates."""
    least = _LEAST_SPREAD**2
    floored = [Spread(max(each.variance, least), each.freedom) for each in own]
    known = [each for each in floored if each.freedom > 0]
    if len(known) < 3:
        return floored
    prior = _prior(known)
    whole = sum(each.freedom for each in known)
    found = []
    for each in floored:
        # the others can't tell more than they know
        freedom = min(prior.freedom, whole - each.freedom)
        total = freedom + each.freedom
        variance = (freedom * prior.variance + each.freedom * each.variance) / total
        found.append(Spread(variance, total))
    return found


def _prior(spreads: Sequence[Spread]) -> Spread:
    """Return the distribution that variances seem to be drawn from: scaled inverse chi-square.

    Its parameters by the moments of the variances' logarithms (Smyth 2004, section 6.2).
    """
    half = np.array([each.freedom / 2 for each in spreads])
    logs = np.log([each.variance for each in spreads])
    centred = logs - scipy.special.psi(half) + np.log(half)
    mean = float(centred.mean())
    excess = float(centred.var(ddof=1) - scipy.special.polygamma(1, half).mean())
    if excess <= 0:
        return Spread(math.exp(mean), math.inf)
    half_freedom = _trigamma_inverse(excess)
    correction = float(scipy.special.psi(half_freedom)) - math.log(half_freedom)
    return Spread(math.exp(mean + correction), 2 * half_freedom)


def _trigamma_inverse(value: float) -> float:
    """Return x with trigamma(x) = value, by Newton's method on 1 / trigamma (ibid., appendix)."""
    x = 0.5 + 1 / value
    for _ in range(_STEPS):
        trigamma = float(scipy.special.polygamma(1, x))
        x += trigamma * (1 - trigamma / value) / float(scipy.special.polygamma(2, x))
    return x


def range_of(column: Column, spread: Spread, rounds: Spread, risk: float) -> Range:
    """Return the mean of a candidate, whose interval is wrong at each end with this risk."""
    return _range(list(column.values()), (spread, rounds), risk)


def log_of_mean(column: Column, is_rate: bool) -> float:
    """Return the logarithm of the mean of a candidate's values: of rates, of the harmonic mean."""
    sign = -1 if is_rate else 1
    values = np.array(list(column.values()))
    return sign * float(scipy.special.logsumexp(sign * values) - math.log(len(values)))


def difference(a: Column, b: Column, spreads: tuple[Spread, Spread], risk: float) -> Range:
    """Return the mean of b - a over the rounds that have both, and its interval, as ``range_of``.

    What a round does to both cancels. Without a round in common nothing is known.
    """
    paired = [b[turn] - a[turn] for turn in a if turn in b]
    if not paired:
        return Range(0.0, -math.inf, math.inf)
    return _range(paired, spreads, risk)


def _range(values: Sequence[float], parts: tuple[Spread, Spread], risk: float) -> Range:
    """Return the mean of values, and its interval.

    Its variance is the sum of two parts, or that of the values where it is larger. The degrees of
    freedom of the sum are Satterthwaite's (1946, Biometrics Bulletin 2:110).
    """
    mean = fmean(values)
    known = [part for part in parts if part.freedom > 0]
    if len(values) < 2 or not known:
        return Range(mean, -math.inf, math.inf)
    variance = sum(part.variance for part in known)
    freedom = min(part.freedom for part in known)
    if variance > 0:
        freedom = variance**2 / sum(part.variance**2 / part.freedom for part in known)
    own = float(np.var(values, ddof=1))
    error = math.sqrt(max(variance, own, _LEAST_SPREAD**2) / len(values))
    half = student_quantile(freedom, 1 - risk) * error
    return Range(mean, mean - half, mean + half)
