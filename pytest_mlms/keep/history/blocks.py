"""Levels and scatter of the points of a series, in blocks of up to 30 points of one level."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from pytest_mlms.core.arrays import Array

LONGEST = 30
"""The most points of a block."""

LEAST_BEFORE = 9
"""The fewest points that a level is taken from."""

_POOLED = 3  # blocks
_MEDIAN_ERROR = math.sqrt(math.pi / 2)  # standard error of a median over that of a mean
_CUT = 3 * 1.4826  # of the median deviation: three standard deviations of normal values
_MOST_CORRELATION = 0.9
_SUMS = ("points", "blocks", "squares", "products of neighbours")  # that are pooled over blocks


@dataclass(frozen=True)
class Scatter:
    """Scatter of the points before each place, pooled over up to three blocks.

    ``deviation`` is their standard deviation, ``correlation`` that of neighbours, and ``freedom``
    are the degrees of freedom of the deviation.
    """

    deviation: Array
    correlation: Array
    freedom: Array

    @property
    def persistence(self) -> Array:
        """Factor of the variance of a mean whose neighbours have the correlation r."""
        return np.asarray((1 + self.correlation) / (1 - self.correlation))

    def error_of_difference(self, size: Array | float) -> Array:
        """Return the standard error of a difference of medians.

        ``size`` is 1 / n + 1 / m for medians of n and of m values.
        """
        factor = np.sqrt(self.persistence * size)
        return np.asarray(_MEDIAN_ERROR * self.deviation * factor)


class Blocks:
    """The block of points before each place of a series: up to 30, all of one level.

    ``starts`` are the first points of the levels. Arrays are by place, from 0 to the number of
    points: ``counts`` are the points of the block that ends before the place, ``medians`` and
    ``ranges`` those of its values.
    """

    def __init__(self, values: Array, starts: Sequence[int]) -> None:
        self.values = values
        self.starts = list(starts)
        places = len(values) + 1
        self.counts = np.zeros(places, int)
        self.medians = np.full(places, np.nan)
        self.ranges = np.zeros(places)
        self._sums = np.zeros((len(_SUMS), places))
        bounds = [*self.starts, len(values)]
        for begin, end in itertools.pairwise(bounds):
            self._add_level(begin, end)

    def _add_level(self, begin: int, end: int) -> None:
        """Fill the arrays at the places after each point of a level."""
        size = end - begin
        places = slice(begin + 1, end + 1)
        windows = _windows(self.values[begin:end])
        ordered = np.sort(windows, axis=1)
        rows = np.arange(size)
        counts = np.minimum(rows + 1, LONGEST)
        medians = _medians(ordered, counts)
        clipped = _clipped(windows - medians[:, None], counts)
        self.counts[places] = counts
        self.medians[places] = medians
        self.ranges[places] = ordered[rows, counts - 1] - ordered[:, 0]
        self._sums[:, places] = (
            counts,
            np.ones(size),
            _sums_of_products(clipped, clipped),
            _sums_of_products(clipped[:, 1:], clipped[:, :-1]),
        )

    def scatter(self, places: Array, least: float) -> Scatter:
        """Return the scatter before places; ``least`` is the least deviation.

        Values are clipped at three deviations from the median of their block. Neighbours of n
        values from b blocks seem less alike than they are by (1 + 3 r) b / n (Kendall 1954,
        Biometrika 41:403).
        """
        sums = np.zeros((len(_SUMS), len(places)))
        ends = places
        for _ in range(_POOLED):
            sums += self._sums[:, ends]
            ends = ends - self.counts[ends]
        counts, blocks, squares, products = sums
        freedom = np.maximum(counts - blocks, 1)
        deviation = np.sqrt(squares / freedom)
        has_scatter = squares > 0
        alike = np.divide(products, squares, out=np.zeros(len(places)), where=has_scatter)
        bias = (1 + 3 * alike) * blocks / np.maximum(counts, 1)
        correlation = np.clip(alike + bias, 0, _MOST_CORRELATION)
        return Scatter(
            deviation=np.maximum(deviation, least),
            correlation=np.where(has_scatter, correlation, 0.0),
            freedom=freedom,
        )

    def before(self, place: int) -> list[Array]:
        """Return the points of the pooled blocks before a place, a part each, the newest first."""
        parts = []
        end = place
        for _ in range(_POOLED):
            begin = end - int(self.counts[end])
            if begin < end:
                parts.append(self.values[begin:end])
            end = begin
        return parts

    def residuals(self, place: int) -> Array:
        """Return the points of the pooled blocks before a place, each less its block's median."""
        parts = [part - np.median(part) for part in self.before(place)]
        return np.concatenate([np.empty(0), *parts])


def _windows(values: Array) -> Array:
    """Return the last values up to each value, a row each; NaN where there are fewer."""
    padding = np.full(LONGEST, np.nan)
    padded = np.concatenate([padding, values])
    return sliding_window_view(padded, LONGEST)[1:]


def _clipped(deviations: Array, counts: Array) -> Array:
    """Return deviations, of which none is beyond three standard deviations; 0 for NaN."""
    ordered = np.sort(np.abs(deviations), axis=1)
    median_deviations = _medians(ordered, counts)
    cut = _CUT * median_deviations[:, None]
    clipped = np.clip(deviations, -cut, cut)
    return np.asarray(np.nan_to_num(clipped))


def _sums_of_products(first: Array, second: Array) -> Array:
    """Return the sum of each row's products."""
    return np.asarray(np.einsum("ij,ij->i", first, second))


def _medians(ordered: Array, counts: Array) -> Array:
    """Return the median of each row, which has this many numbers in order, and then NaN."""
    rows = np.arange(len(ordered))
    before_middle = (counts - 1) // 2
    lower = ordered[rows, before_middle]
    upper = ordered[rows, counts // 2]
    return np.asarray((lower + upper) / 2)
