"""Tests of the last points of a series against the level before them: Student's and Fisher's."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import scipy
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from pytest_mlms.keep.history.blocks import Blocks

Array = NDArray[Any]

WINDOWS = (3, 5, 8, 15)
"""Numbers of last runs whose level is compared with the level before."""


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


def first_rare(windows: Iterable[Window], blocks: Blocks, risk: float) -> Window | None:
    """Return the first window whose points are rare among those before; None for none.

    ``risk`` is that of the test of the points' order.
    """
    for window in sorted(windows):
        if _is_rare(window, blocks, risk):
            return window
    return None


def first_beyond(windows: Iterable[Window], blocks: Blocks, risk: float) -> Window | None:
    """Return the first window before which no point was half as far off; None for none.

    Some may be where the points are rare among those before all the same.
    """
    for window in sorted(windows):
        _, before = _beyond_half(window, blocks)
        if not before.any() or _is_rare(window, blocks, risk):
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
