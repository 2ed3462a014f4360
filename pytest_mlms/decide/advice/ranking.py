"""Models ranked by a quantity of the same inputs. All functions are pure.

A model is worse where it is surely worse than the one that seems best. Only comparisons with the
true best can lose it, so that these share the risk, and not all pairs (Hsu 1981, Annals of
Statistics 9:1026).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from pytest_mlms.core.arrays import Array
from pytest_mlms.core.quantities import QUANTITIES
from pytest_mlms.core.records import Estimate
from pytest_mlms.core.statistics import Interval, binomial_bounds, largest_loss
from pytest_mlms.measure.evaluate.scoring import (
    estimate_evidence,
    resampled_bounds,
    resampled_figures,
)
from pytest_mlms.measure.evaluate.tasks.task import Evidence

_FEWEST = 50
"""Inputs from which on samples of them show how a mean scatters.

Of two equally good models with skewed errors (exponential, lognormal), one was called the best in
8 % of 300 rankings with 20 inputs, in 6 % with 30, and in 4 % with 50.
"""


Standing = Literal["best", "alike", "worse", "unknown"]


class Rank(NamedTuple):
    """A model's place.

    ``estimate`` has the 95 % interval, and ``behind`` is by how much it is worse than the one that
    seems best, at the risk of the ranking; None for that one, and where there is no estimate.
    """

    number: int
    standing: Standing
    estimate: Estimate
    behind: Interval | None = None


def rank(evidence: Sequence[Evidence], quantity: str, seed: int, risk: float) -> list[Rank]:
    """Return the models by a quantity, the best in the mean first, given what each answered.

    All have the same inputs, which pair them, and ``seed`` draws samples of these. There is a
    "best" only where all others are worse; otherwise the first ones are "alike". "unknown" are
    those that these inputs have no value of. The best is called worse with half of the ``risk`` at
    most, and one of several that are equally good is called the best with all of it.
    """
    sign = QUANTITIES[quantity].sign
    found = [estimate_evidence(each, seed).get(quantity) for each in evidence]
    known: list[Rank] = []
    unknown: list[Rank] = []
    for number, estimate in enumerate(found):
        if estimate is None or math.isnan(estimate.value):
            missing = Estimate(math.nan, 0.0, math.inf, 0.95, 0, "inputs", "it was not measured")
            unknown.append(Rank(number, "unknown", estimate or missing))
        else:
            known.append(Rank(number, "alike", estimate))
    known.sort(key=lambda each: sign * each.estimate.value)
    if not known:
        return unknown
    first, *others = known
    share = risk / 2 / max(len(evidence) - 1, 1)
    ranked = []
    for other in others:
        sides = evidence[first.number], evidence[other.number]
        behind = _behind(*sides, quantity, seed, share)
        standing: Standing = "worse" if behind.low > 0 else "alike"
        ranked.append(other._replace(standing=standing, behind=behind))
    is_best = all(each.standing == "worse" for each in ranked) and not unknown
    return [first._replace(standing="best" if is_best else "alike"), *ranked, *unknown]


def _behind(best: Evidence, other: Evidence, quantity: str, seed: int, risk: float) -> Interval:
    """Return by how much another model is worse than the best, wrong at each end with this risk."""
    if quantity in best.shares:
        return _fewer_right(best.shares[quantity], other.shares[quantity], risk)
    inputs = len(best)
    if inputs < _FEWEST:
        return Interval(-math.inf, math.inf)
    of_best, of_other = resampled_figures([best, other], seed)
    worse = QUANTITIES[quantity].sign * (of_other[quantity] - of_best[quantity])
    if np.isnan(worse).all():
        return Interval(-math.inf, math.inf)
    return Interval(*resampled_bounds(worse, risk, risk, inputs))


def _fewer_right(best: Array, other: Array, risk: float) -> Interval:
    """Return how much smaller the share of right answers is, by the inputs that differ (Tango).

    Its lower end is above 0 only where a sign test of these inputs, which is exact for few of them,
    says so, too (McNemar 1947, Psychometrika 12:153).
    """
    lost = int((best & ~other).sum())
    won = int((other & ~best).sum())
    low = -largest_loss(won, lost, len(best), risk)
    high = largest_loss(lost, won, len(best), risk)
    if not lost or binomial_bounds(lost, lost + won, risk, risk).low <= 0.5:
        low = min(low, 0.0)
    return Interval(low, high)
