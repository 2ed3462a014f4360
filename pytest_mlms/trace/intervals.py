"""Containment of intervals: the smallest interval around each of many others."""

from __future__ import annotations

import bisect
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Containers", "find_containers"]

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Containers:
    """The index of the interval around each inner one (-1: none), and whether it is ambiguous."""

    index: Array
    ambiguous: Array


@dataclass(frozen=True, eq=False)
class _Enclosing:
    """For each interval the last one before it that ends no earlier, and whether any two cross."""

    index: Array
    crossing: bool


def find_containers(start: Array, end: Array, inner_start: Array, inner_end: Array) -> Containers:
    """Return for each inner interval the last-started interval that contains it.

    Of nested intervals that is the smallest. It is ambiguous where another interval contains the
    inner one too and crosses the chosen one, so that neither is inside of the other. Takes
    O((n + m) log n) for n intervals and m inner ones.
    """
    if not len(start):
        none = np.full(len(inner_start), -1, "i8")
        return Containers(none, none >= 0)
    order = np.lexsort((np.arange(len(start)), -end, start))
    starts = start[order]
    ends = end[order]
    enclosing = _enclosing(starts, ends)
    place = np.searchsorted(starts, inner_start, side="right") - 1
    while True:
        too_short = (place >= 0) & (ends[place] < inner_end)
        if not too_short.any():
            break
        place[too_short] = enclosing.index[place[too_short]]
    found = np.where(place >= 0, order[place], -1)
    if enclosing.crossing:
        return Containers(found, _is_ambiguous(ends, place, inner_end))
    return Containers(found, np.zeros(len(place), bool))


def _enclosing(start: Array, end: Array) -> _Enclosing:
    """Return the enclosing interval of each; the intervals are sorted by (start, -end)."""
    starts = start.tolist()
    ends = end.tolist()
    enclosing = []
    crossing = False
    open_intervals: list[int] = []
    for index, interval_end in enumerate(ends):
        while open_intervals and ends[open_intervals[-1]] < interval_end:
            closed = open_intervals.pop()
            crossing |= ends[closed] > starts[index]
        enclosing.append(open_intervals[-1] if open_intervals else -1)
        open_intervals.append(index)
    return _Enclosing(np.array(enclosing, "i8"), crossing)


def _is_ambiguous(ends: Array, place: Array, inner_end: Array) -> Array:
    """Return where an earlier interval ends within the inner end and the end of the chosen one.

    Such an interval contains the inner one and crosses the chosen one.
    """
    ambiguous = np.zeros(len(place), bool)
    earlier_ends: list[int] = []
    added = 0
    for query in np.argsort(place, kind="stable").tolist():
        chosen = int(place[query])
        if chosen < 0:
            continue
        while added < chosen:
            bisect.insort(earlier_ends, int(ends[added]))
            added += 1
        first = bisect.bisect_left(earlier_ends, int(inner_end[query]))
        if first < len(earlier_ends):
            ambiguous[query] = earlier_ends[first] < ends[chosen]
    return ambiguous
