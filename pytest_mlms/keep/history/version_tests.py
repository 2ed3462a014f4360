"""Tests of the first points with another software: Student's prediction, over a night's series."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from pytest_mlms.keep.history.blocks import Blocks

Array = NDArray[Any]

ALARM_RISK = 7.5e-4
"""Of an alarm in a night without a change, over all of its series.

Where neighbouring nights have a correlation of 0.3, ten of them tell so little of their variance
that it is a quarter more: still below 1 in 1,000.
"""

NAMED_RISK = 0.05
"""The same of a suspicion that is named, for the gate to decide."""

AFTER_VERSION = range(1, 9)
"""Numbers of points after a change of software that are tested.

The search for a step anywhere takes no more, however few points there are before it.
"""

LEAST_NAMED = 3
"""The fewest points before that a suspicion is named from."""

_FOUR_OF_FIVE = 0.84  # standard errors beyond a threshold


class Prediction(NamedTuple):
    """How far new points are from those before, on the scale of values.

    ``error`` is the standard error of ``change`` as a prediction, with ``freedom`` degrees.
    """

    change: float
    error: float
    freedom: int

    @property
    def risk(self) -> float:
        """The probability of a change as large by chance, two-sided."""
        return float(2 * scipy.special.stdtr(self.freedom, -abs(self.change) / self.error))

    def half(self, risk: float) -> float:
        """Return half of the interval that misses new points with this probability."""
        return float(-scipy.special.stdtrit(self.freedom, risk / 2) * self.error)

    def seen(self, risk: float, least: float) -> float:
        """Return the change that four times of five is above ``least`` and has less than a risk."""
        return max(self.half(risk), least) + _FOUR_OF_FIVE * self.error


def predict(blocks: Blocks, place: int, length: int, noise: float) -> Prediction:
    """Return how far the points from ``place`` on are from the level before, by their means.

    The variance is that between nights: what varies within a night tells nothing of the next one.
    The interval is Student's for the mean of further values (Hahn and Meeker 1991, Statistical
    Intervals, chapter 4). Neighbours that are alike don't widen that of a single point, as they
    make the level before it a better prediction; the mean of several scatters more.
    """
    deviation, freedom = deviation_before(blocks, place, noise)
    alike = float(blocks.scatter(np.array([place]), noise).correlation[0])
    growth = 1.0
    for apart in range(1, length):
        growth += 2 * (1 - apart / length) * alike**apart
    count = int(blocks.counts[place])
    level = blocks.values[place - count : place].mean()
    new = blocks.values[place : place + length].mean()
    error = deviation * math.sqrt(growth / length + 1 / count)
    return Prediction(float(new - level), error, freedom)


def predict_next(blocks: Blocks, count: int, noise: float) -> Prediction:
    """Return the prediction of a next point, were it on the level of ``count`` points."""
    deviation, freedom = deviation_before(blocks, len(blocks.values), noise)
    return Prediction(0.0, deviation * math.sqrt(1 + 1 / count), freedom)


def deviation_before(blocks: Blocks, place: int, noise: float) -> tuple[float, int]:
    """Return the standard deviation of the pooled blocks before a place, and its freedom.

    Nothing is clipped, as a test of one point has no other guard against outliers. ``noise`` is the
    least deviation.
    """
    parts = blocks.before(place)
    squares = sum(float(np.square(part - part.mean()).sum()) for part in parts)
    freedom = max(1, sum(len(part) - 1 for part in parts))
    return max(noise, math.sqrt(squares / freedom)), freedom


def tests_at(changed: Array, last: int) -> int:
    """Return how many changes of software are tested at a point: those shortly before it."""
    age = last - changed
    return max(1, int(np.count_nonzero((age >= 0) & (age < AFTER_VERSION[-1]))))


def accepted_risk(risks: Sequence[float], tests: int, level: float, known: int = 0) -> float:
    """Return the largest of these risks that counts among ``tests`` of a night; 0 for none.

    The rule is that of Benjamini and Hochberg (1995, Journal of the Royal Statistical Society B
    57:289): the i-th smallest of m risks counts up to i / m of the level. If nothing changed, a
    night has an alarm with the probability ``level`` at most, also where its series are slow
    together (Benjamini and Yekutieli 2001, Annals of Statistics 29:1165). A release that changes
    them all needs the level alone in each. ``known`` are changes of that night which were found
    before.
    """
    accepted = 0.0
    for rank, risk in enumerate(sorted(risks), start=known + 1):
        if risk <= level * min(1, rank / max(1, tests)):
            accepted = risk
    return accepted
