"""The interval of a change over rounds, and the risk of looks at it: pure functions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

from pytest_mlms.core.statistics import Pooled, pool_rounds, student_quantile

LEAST_ROUNDS = 6
"""Rounds after which a quantity may pass.

Where every other process of a side is slow, so many rounds show none of these in one of 64 items.
"""

ROUNDS_TO_FAIL = 8
"""Rounds after which a quantity may regress: one of 256 such items shows slow ones only."""

MOST_ROUNDS = 12

_LOOKS_OF_FAILING = 0.0037
_LOOKS_OF_PASSING = 0.037
"""Risks of all looks together at rounds that are normally distributed."""

_ROUNDS_TO_TRIM = 10
_LEFT_OUT = 5  # one round of so many, on either side
_TRIMMED_SHARE = 0.5  # of the risk of a look, for the trimmed mean
_ROUNDS_FOR_ORDER = 4
_ORDER_RISK = 0.025
_LARGEST_LOG = 700.0


class RoundSpan(NamedTuple):
    """How many rounds an item has before it may pass, and at most."""

    least: int = LEAST_ROUNDS
    most: int = MOST_ROUNDS

    @property
    def to_fail(self) -> int:
        """The rounds after which a quantity may regress."""
        return min(max(self.least, ROUNDS_TO_FAIL), self.most)

    @property
    def risk_of_failing(self) -> float:
        """The risk of a look to call a change at the edge REGRESSED.

        It is the same at each (Pocock 1977, Biometrika 64:191). That of all looks is so many times
        as large, by simulation of 6 to 48 rounds: Student's ratio doesn't depend on how much rounds
        differ, and so neither does this.
        """
        return _LOOKS_OF_FAILING / (1 + 4 * math.log(self.most / self.to_fail))

    @property
    def risk_of_passing(self) -> float:
        """The risk of a look to call a change at the edge PASSED."""
        return _LOOKS_OF_PASSING / (1 + 3 * math.log(self.most / self.least))


ROUNDS = RoundSpan()


class RoundEstimate(NamedTuple):
    """A mean over rounds of the log of how much worse B is, and its interval.

    ``low`` says whether a quantity regressed, ``high`` whether it passed. ``error`` is the standard
    error of the mean.
    """

    mean: float
    low: float
    high: float
    error: float


class OrderEffect(NamedTuple):
    """By which share the side that is started first is slower, and the 95 % interval of that."""

    share: float
    low: float
    high: float


def estimate_change(
    changes: Sequence[float], span: RoundSpan, orders: Sequence[int] = ()
) -> RoundEstimate:
    """Return the interval of the mean of ``changes``, Student's or, at either end, a trimmed one.

    A trimmed end is taken where it is narrower, and where no more rounds stand apart on the other
    side than on its own: else it would be that of another quantity than the mean. A round stands
    apart that is further from those which are left than these from each other.

    ``orders`` say of each round whether B (1) or A (-1) was started first, and 0 where that is not
    to be seen in it; their effect is left out of the changes.
    """
    pooled, values = _without_order(changes, orders)
    low = pooled.below(span.risk_of_failing)
    high = pooled.above(span.risk_of_passing)
    if len(values) >= _ROUNDS_TO_TRIM:
        ordered = sorted(values)
        trimmed = len(values) // _LEFT_OUT
        robust = pool_rounds(ordered, trimmed)._replace(freedom=pooled.freedom - 2 * trimmed)
        above, below = _standing_apart(ordered, trimmed)
        if below <= above:
            low = max(low, robust.below(_TRIMMED_SHARE * span.risk_of_failing))
        if above <= below:
            high = min(high, robust.above(_TRIMMED_SHARE * span.risk_of_passing))
    return RoundEstimate(min(max(pooled.mean, low), high), low, high, pooled.error)


def _standing_apart(ordered: Sequence[float], trimmed: int) -> tuple[int, int]:
    """Return how many of the values that are trimmed stand apart, above and below."""
    least = ordered[trimmed]
    most = ordered[-1 - trimmed]
    width = most - least
    above = sum(value > most + width for value in ordered)
    below = sum(value < least - width for value in ordered)
    return above, below


def _without_order(
    changes: Sequence[float], orders: Sequence[int]
) -> tuple[Pooled, Sequence[float]]:
    """Return the mean of the changes without the effect of the order of start, and the changes."""
    fit = _fit_order(changes, orders)
    if fit is None:
        return pool_rounds(changes), changes
    effect, centre, squares = fit
    values = [change - effect.mean * order for change, order in zip(changes, orders, strict=True)]
    deviation = effect.error * math.sqrt(squares)
    error = deviation * math.sqrt(1 / len(values) + centre**2 / squares)
    return Pooled(fmean(values), error, effect.freedom), values


class _Fit(NamedTuple):
    """The effect of the order by least squares; the mean of the orders and their squares."""

    effect: Pooled
    centre: float
    squares: float


def _fit_order(changes: Sequence[float], orders: Sequence[int]) -> _Fit | None:
    """Fit changes by a line over orders; None for too few rounds, or a single order."""
    count = len(changes)
    if count < _ROUNDS_FOR_ORDER or len(orders) != count or len(set(orders)) < 2:
        return None
    centre = fmean(orders)
    squares = math.fsum((order - centre) ** 2 for order in orders)
    mean = fmean(changes)
    products = [(order - centre) * change for order, change in zip(orders, changes, strict=True)]
    slope = math.fsum(products) / squares
    left = [
        change - mean - slope * (order - centre)
        for order, change in zip(orders, changes, strict=True)
    ]
    freedom = count - 2
    error = math.sqrt(math.fsum(value**2 for value in left) / freedom / squares)
    return _Fit(Pooled(slope, error, freedom), centre, squares)


def order_effect(changes: Sequence[float], orders: Sequence[int]) -> OrderEffect | None:
    """Return the effect of the order of start; None where the rounds don't show it."""
    fit = _fit_order(changes, orders)
    if fit is None:
        return None
    ends = (fit.effect.mean, fit.effect.below(_ORDER_RISK), fit.effect.above(_ORDER_RISK))
    return OrderEffect(*map(math.expm1, ends))


def unseen_share(rounds: int) -> float:
    """Return the largest share of processes whose kind so many may not have shown: one of 20."""
    return 1 - float(0.05 ** (1 / rounds))


def found_above(error: float, rounds: int, span: RoundSpan, power: float) -> float:
    """Return how far above its limit a change is found with this probability, by all rounds."""
    error *= math.sqrt(rounds / span.most)
    quantile = student_quantile(span.most - 1, 1 - span.risk_of_failing)
    return error * (quantile + student_quantile(span.most - 1, power))


def exp_of(value: float) -> float:
    """Return e to the power of ``value``, infinity beyond the largest number."""
    return math.exp(value) if value < _LARGEST_LOG else math.inf
