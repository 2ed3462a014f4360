"""Intervals of time, their nesting, and means of groups of them."""

from __future__ import annotations

import bisect
import math
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Key = TypeVar("Key", bound=Hashable)

_TRIM = 0.2  # of the values, at each end


def grouped(keys: Iterable[Key], values: Array) -> dict[Key, Array]:
    """Return the values of each key, the keys in the order of their first value."""
    groups: dict[Key, list[Any]] = {}
    for key, value in zip(keys, values.tolist(), strict=True):
        group = groups.setdefault(key, [])
        group.append(value)
    return {key: np.array(group) for key, group in groups.items()}


def trimmed_mean(values: Array) -> float:
    """Return the mean without the largest and the smallest fifth; NaN of no values."""
    if not len(values):
        return math.nan
    return float(middle(np.sort(values)).mean())


def middle(ordered: Array) -> Array:
    """Return ordered values without the first and the last fifth."""
    count = len(ordered)
    cut = int(_TRIM * count)
    return ordered[cut : count - cut]


@dataclass(frozen=True, eq=False)
class Intervals:
    """Start and end of each interval."""

    start: Array
    end: Array

    def __len__(self) -> int:
        return len(self.start)

    def take(self, order: Array) -> Intervals:
        """Return the intervals in another order."""
        return Intervals(self.start[order], self.end[order])


@dataclass(frozen=True, eq=False)
class Containers:
    """The index of the interval around each inner one (-1: none), and whether it is ambiguous."""

    index: Array
    ambiguous: Array


@dataclass(frozen=True, eq=False)
class Enclosing:
    """For each interval the last one before it that ends no earlier, and whether any two cross."""

    index: Array
    crossing: bool


def find_containers(outer: Intervals, inner: Intervals) -> Containers:
    """Return for each inner interval the last-started outer one that contains it.

    Of nested intervals that is the smallest. It is ambiguous where another interval contains the
    inner one too and crosses the chosen one, so that neither is inside of the other. Takes
    O((n + m) log n) for n outer and m inner intervals.
    """
    none = np.full(len(inner), -1, "i8")
    unambiguous = np.zeros(len(inner), bool)
    if not len(outer):
        return Containers(none, unambiguous)
    order = np.lexsort((-outer.end, outer.start))
    outer = outer.take(order)
    around = enclosing(outer)
    place = np.searchsorted(outer.start, inner.start, side="right") - 1
    while True:
        ends_earlier = outer.end[place] < inner.end
        too_short = ends_earlier & (place >= 0)
        if not too_short.any():
            break
        place[too_short] = around.index[place[too_short]]
    found = np.where(place >= 0, order[place], none)
    if around.crossing:
        return Containers(found, _is_ambiguous(outer, place, inner))
    return Containers(found, unambiguous)


def enclosing(intervals: Intervals) -> Enclosing:
    """Return the enclosing interval of each; the intervals are sorted by (start, -end)."""
    starts = intervals.start.tolist()
    ends = intervals.end.tolist()
    found = []
    crossing = False
    open_intervals = [-1]
    ends.append(math.inf)  # the end of number -1, which encloses all others
    for index, interval_end in enumerate(ends[:-1]):
        while ends[open_intervals[-1]] < interval_end:
            closed = open_intervals.pop()
            crossing |= ends[closed] > starts[index]
        found.append(open_intervals[-1])
        open_intervals.append(index)
    return Enclosing(np.array(found, "i8"), crossing)


def _is_ambiguous(outer: Intervals, place: Array, inner: Intervals) -> Array:
    """Return where an earlier interval ends within the inner end and the end of the chosen one.

    Such an interval contains the inner one and crosses the chosen one. ``place`` is the index of
    the chosen one.
    """
    ambiguous = np.zeros(len(place), bool)
    ends = outer.end.tolist()
    earlier_ends: list[int] = []
    added = 0
    for query in np.argsort(place, kind="stable").tolist():
        chosen = int(place[query])
        if chosen < 0:
            continue
        while added < chosen:
            bisect.insort(earlier_ends, ends[added])
            added += 1
        first = bisect.bisect_left(earlier_ends, int(inner.end[query]))
        if first < len(earlier_ends):
            ambiguous[query] = earlier_ends[first] < ends[chosen]
    return ambiguous
