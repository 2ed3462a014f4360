"""Tests of the last points of a series against the level before them: Student's and Fisher's.

Where the software changed, the first points with it are tested by Student's prediction, over all
series of a night.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import scipy
from numpy.lib.stride_tricks import sliding_window_view

from pytest_mlms.core.arrays import Array
from pytest_mlms.keep.history.blocks import Blocks

WINDOWS = (3, 5, 8, 15)
"""Numbers of last runs whose level is compared with the level before."""

ALARM_RISK = 7e-4
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

RARE = 0.01
"""The risk of the test of the points' order where they are few, as after a version."""

LEAST_NAMED = 3
"""The fewest points before that a suspicion is named from."""

FOUR_OF_FIVE = 0.84
"""Standard errors beyond a threshold that are above it four times of five."""


class Window(NamedTuple):
    """Points beside a level: ``length`` points from ``place`` to ``last``.

    ``change`` is how far they are from the level.
    """

    last: int
    length: int
    place: int
    level: float
    change: float


@dataclass(frozen=True)
class Windows:
    """Windows of one length beside levels of blocks. Arrays are by window.

    Attributes:
        length: The number of points of a window.
        places: The first point of each.
        levels: The level that each is compared with.
        counts: The number of points that each level is taken from.
        changes: How far the points are from the level.
    """

    length: int
    places: Array
    levels: Array
    counts: Array
    changes: Array

    @classmethod
    def of(cls, blocks: Blocks, length: int, places: Array, ends: Array) -> Windows:
        """Return the windows at places, beside the blocks that end before the points ``ends``."""
        levels = blocks.medians[ends]
        changes = _changes(blocks.values, length, places, levels)
        return cls(length, places, levels, blocks.counts[ends], changes)

    def __len__(self) -> int:
        return len(self.places)

    def __iter__(self) -> Iterator[Window]:
        columns = (self.places, self.levels, self.changes)
        rows = zip(*[column.tolist() for column in columns], strict=True)
        for place, level, change in rows:
            last = place + self.length - 1
            yield Window(last, self.length, place, level, change)

    def beyond(self, least: float) -> Windows:
        """Return the windows that are farther from their levels."""
        return self._where(np.abs(self.changes) > least)

    def significant(self, blocks: Blocks, noise: float, risk: float) -> Windows:
        """Return the windows that differ from their levels by Student's test.

        ``noise`` is the least standard deviation, and ``risk`` that of each window.
        The error grows by sqrt((1 + r) / (1 - r)) where neighbours have the correlation r (Bayley
        and Hammersley 1946, Supplement to the Journal of the Royal Statistical Society 8:184), and
        the degrees of freedom shrink by its square.
        """
        if not len(self):
            return self
        scatter = blocks.scatter(self.places, noise)
        size = 1 / self.length + 1 / self.counts
        error = scatter.error_of_difference(size)
        freedom = np.maximum(scatter.freedom / scatter.persistence, 1)
        statistic = np.abs(self.changes) / error
        return self._where(2 * scipy.special.stdtr(freedom, -statistic) < risk)

    def _where(self, chosen: Array) -> Windows:
        return Windows(
            self.length,
            self.places[chosen],
            self.levels[chosen],
            self.counts[chosen],
            self.changes[chosen],
        )


class Prediction(NamedTuple):
    """How far new points are from those before, on the scale of values.

    ``error`` is the standard error of ``change`` as a prediction, with ``freedom`` degrees.
    """

    change: float
    error: float
    freedom: int

    @property
    def p_value(self) -> float:
        """The probability of a change as large by chance, two-sided."""
        return float(2 * scipy.special.stdtr(self.freedom, -abs(self.change) / self.error))

    def half(self, risk: float) -> float:
        """Return half of the interval that misses new points with this probability."""
        return float(-scipy.special.stdtrit(self.freedom, risk / 2) * self.error)

    def seen(self, risk: float, least: float) -> float:
        """Return the change that four times of five is above ``least`` and has less than a risk."""
        return max(self.half(risk), least) + FOUR_OF_FIVE * self.error


def first_rare(windows: Iterable[Window], blocks: Blocks, risk: float) -> Window | None:
    """Return the first window whose points are rare among those before; None for none.

    ``risk`` is that of the test of the points' order.
    """
    for window in sorted(windows):
        if _is_rare(window, blocks, risk):
            return window
    return None


def first_beyond(windows: Iterable[Window], blocks: Blocks) -> Window | None:
    """Return the first window before which no point was half as far off; None for none.

    Some may be where the points are rare among those before all the same.
    """
    for window in sorted(windows):
        _, before = _beyond_half(window, blocks)
        if not before.any() or _is_rare(window, blocks, RARE):
            return window
    return None


def least_points(before: int, risk: float) -> int:
    """Return how many points off a level of ``before`` ones can be rare.

    They are most of a window, of the shortest one all.
    """
    for points in range(WINDOWS[0], WINDOWS[-1]):
        for length in WINDOWS:
            most = points if length == WINDOWS[0] else 2 * points - 1
            others = before - (length - points)
            if points <= length <= most and _order_risk(points, length, 0, others) < risk:
                return points
    return WINDOWS[-1]


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


def accepted_p_value(p_values: Sequence[float], tests: int, level: float, known: int = 0) -> float:
    """Return the largest of these p-values that counts among ``tests`` of a night; 0 for none.

    The rule is that of Benjamini and Hochberg (1995, Journal of the Royal Statistical Society B
    57:289): the i-th smallest of m p-values counts up to i / m of the level. If nothing changed, a
    night has an alarm with the probability ``level`` at most, also where its series are slow
    together (Benjamini and Yekutieli 2001, Annals of Statistics 29:1165). A release that changes
    them all needs the level alone in each. ``known`` are changes of that night which were found
    before.
    """
    accepted = 0.0
    for rank, p_value in enumerate(sorted(p_values), start=known + 1):
        if p_value <= level * min(1, rank / max(1, tests)):
            accepted = p_value
    return accepted


def _changes(values: Array, length: int, places: Array, levels: Array) -> Array:
    """Return how far the points from each place on are from its level.

    It is their median; of three points the nearest, or 0 where they are on both sides.
    """
    if not len(places):
        return np.empty(0)
    points = sliding_window_view(values, length)[places]
    if length > WINDOWS[0]:
        ordered = np.sort(points, axis=1)
        lower = ordered[:, (length - 1) // 2]
        upper = ordered[:, length // 2]
        return np.asarray((lower + upper) / 2 - levels)
    least = points.min(axis=1) - levels
    largest = points.max(axis=1) - levels
    return np.asarray(np.maximum(least, 0) + np.minimum(largest, 0))


def _is_rare(window: Window, blocks: Blocks, risk: float) -> bool:
    """Return whether points this far from their level are rare among those before.

    By Fisher's exact test (1922, Journal of the Royal Statistical Society 85:87) the last ones have
    more of them than chance gives.
    """
    last, before = _beyond_half(window, blocks)
    hits = int(np.count_nonzero(last))
    other_hits = int(np.count_nonzero(before))
    return _order_risk(hits, len(last), other_hits, len(before)) < risk


def _beyond_half(window: Window, blocks: Blocks) -> tuple[Array, Array]:
    """Return which of the last points are beyond half of the change, and which of those before."""
    last = blocks.values[window.place : window.last + 1] - window.level
    change = float(np.median(last))
    sign, half = math.copysign(1, change), abs(change) / 2
    return sign * last > half, sign * blocks.residuals(window.place) > half


@lru_cache(maxsize=4096)
def _order_risk(hits: int, count: int, other_hits: int, other_count: int) -> float:
    """Return the probability that at least ``hits`` of all hits are among the ``count``."""
    total = hits + other_hits
    misses = count + other_count - total
    ways = 0
    for among in range(hits, min(count, total) + 1):
        hit_ways = math.comb(total, among)
        miss_ways = math.comb(misses, count - among)
        ways += hit_ways * miss_ways
    return ways / math.comb(count + other_count, count)
