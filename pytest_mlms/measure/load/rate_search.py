"""The rate at which a percentile of latencies reaches a limit, on the same arrivals at each rate.

With the same unit arrivals, scaled to a rate, each query of a queue waits the longer the higher the
rate is (Lindley 1952, Mathematical Proceedings of the Cambridge Philosophical Society 48:277). So
the percentile rises with the rate, and crosses the limit once. The crossing is searched on log
scales of both. The module knows no agent: it is told what each rate gave.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pytest_mlms.manifest.scenarios import HIGHEST_RATE, LOWEST_RATE

_WIDTH = 0.1  # log of the bracket's ends that is narrow enough to interpolate in
_STEP = 0.9  # of the width
_LONGEST_STEP = math.log(2)
STEEPNESS = 4.0
"""d log latency / d log rate at the limit, until it is known."""

_LEAST_STEEPNESS = 1.0
_RUNS = 12
_DIGITS = 6  # of a rate


class RatePoint(NamedTuple):
    """A rate in queries a second, and the percentile of the latencies over the limit there."""

    rate: float
    ratio: float

    @property
    def good(self) -> bool:
        """True if the percentile is within the limit."""
        return self.ratio <= 1


@dataclass(frozen=True)
class Crossing:
    """The rate at which the percentile reaches the limit, and the rates on both sides of it.

    Attributes:
        rate: The rate; the end that is there where one is missing.
        good: The highest rate within the limit, 0 where there is none.
        bad: The lowest rate above it that breaks the limit, infinity where there is none.
        steepness: d log latency / d log rate between both.
        exceptions: Rates well below ``good`` that broke the limit: the outcomes are not monotone.
    """

    rate: float
    good: float
    bad: float
    steepness: float
    exceptions: tuple[float, ...] = ()


class RateSearch:
    """The search of one crossing.

    ``start`` is the first rate, and ``lowest`` the least that may be tried. ``steepness`` is the
    steepness of an earlier crossing. ``upwards`` is whether a higher rate may be good where
    ``start`` is bad, as with a batcher, whose batches fill faster. There are at most ``runs``
    rates.
    """

    def __init__(
        self,
        start: float,
        lowest: float = LOWEST_RATE,
        steepness: float = STEEPNESS,
        upwards: bool = False,
        runs: int = _RUNS,
    ) -> None:
        self._lowest = max(lowest, LOWEST_RATE)
        self._start = min(max(start, self._lowest), HIGHEST_RATE)
        self._steepness = max(steepness, _LEAST_STEEPNESS)
        self._upwards = upwards
        self._runs = runs
        self._points: list[RatePoint] = []

    @property
    def points(self) -> Sequence[RatePoint]:
        """The rates that were tried, in their order."""
        return self._points

    def add(self, rate: float, ratio: float) -> None:
        """Take the percentile at a rate, over the limit."""
        self._points.append(RatePoint(rate, ratio))

    def next_rate(self) -> float | None:
        """Return the rate to try next, None where the crossing is found or can't be."""
        if not self._points:
            return _rounded(self._start)
        if len(self._points) >= self._runs:
            return None
        low, high = self._bracket()
        if low is None:
            assert high is not None, "a point is good or bad"
            return self._below(high)
        if high is None:
            return self._above(low)
        return _between(low, high)

    def crossing(self) -> Crossing:
        """Return the crossing by the rates so far, one or more."""
        low, high = self._bracket()
        if low is None:
            assert high is not None, "a rate was tried"
            return Crossing(high.rate, 0.0, high.rate, self._steepness)
        exceptions = self._exceptions(low)
        if high is None:
            return Crossing(low.rate, low.rate, math.inf, self._steepness, exceptions)
        rise = math.log(high.ratio / low.ratio)
        width = math.log(high.rate / low.rate)
        rate = low.rate * math.exp(_interpolated(low, high))
        return Crossing(rate, low.rate, high.rate, rise / width, exceptions)

    def _exceptions(self, low: RatePoint) -> tuple[float, ...]:
        least = low.rate * math.exp(-_WIDTH)
        rates = [point.rate for point in self._points if not point.good and point.rate < least]
        return tuple(sorted(rates))

    def _bracket(self) -> tuple[RatePoint | None, RatePoint | None]:
        """Return the highest good point, and the lowest bad one above it."""
        low = max((point for point in self._points if point.good), default=None)
        least = low.rate if low else 0.0
        above = [point for point in self._points if not point.good and point.rate > least]
        return low, min(above, default=None)

    def _above(self, low: RatePoint) -> float | None:
        rate = _rounded(min(low.rate * math.exp(self._step(low)), HIGHEST_RATE))
        return rate if rate > low.rate else None

    def _below(self, high: RatePoint) -> float | None:
        if self._upwards and len(self._points) <= 2:
            return _rounded(min(2 ** len(self._points) * self._start, HIGHEST_RATE))
        rate = _rounded(max(high.rate * math.exp(-self._step(high)), self._lowest))
        return rate if rate < high.rate else None

    def _step(self, point: RatePoint) -> float:
        """Return the step on log rate that should just cross the limit."""
        distance = abs(math.log(point.ratio)) / self._steepness
        return min(distance + _STEP * _WIDTH / 2, _LONGEST_STEP)


def _between(low: RatePoint, high: RatePoint) -> float | None:
    """Return a rate in a bracket that is too wide, None where it is narrow enough.

    It is the crossing by interpolation, moved so that the bracket gets narrow enough: by either
    outcome where that is possible, else by the likely one.
    """
    width = math.log(high.rate / low.rate)
    if width <= _WIDTH:
        return None
    place = _interpolated(low, high)
    step = _STEP * _WIDTH
    if width <= 2 * step:
        place = min(max(place, width - step), step)
    elif place < step:
        place = step
    elif width - place < step:
        place = width - step
    rate = _rounded(low.rate * math.exp(place))
    return rate if low.rate < rate < high.rate else None


def _interpolated(low: RatePoint, high: RatePoint) -> float:
    """Return the distance of the crossing from ``low`` on log rate."""
    share = -math.log(low.ratio) / math.log(high.ratio / low.ratio)
    return share * math.log(high.rate / low.rate)


def _rounded(rate: float) -> float:
    return float(f"{rate:.{_DIGITS}g}")
