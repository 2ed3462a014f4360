"""Who caused whom: the parent of every span. Pure functions of columns.

Ids come first: what a launch started belongs to the launch, and a launch to the layer that CUPTI
was told. For the rest it is the smallest interval of a level above that contains the span, on the
same thread; times alone decide there, so where intervals cross, the answer is marked as ambiguous.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_mlms.trace import LEVELS
from pytest_mlms.trace.spans import Spans

__all__ = ["Parents", "ancestors", "containers", "find_parents", "sums_by"]

Array = NDArray[Any]

_LAYER, _LIBRARY, _KERNEL = (LEVELS.index(level) for level in ("layer", "library", "kernel"))


@dataclass(frozen=True, eq=False)
class Parents:
    """``index`` of each span's parent (-1.

    None), and whether another could have been meant as well.
    """

    index: Array
    ambiguous: Array


def find_parents(spans: Spans, device_tracks: Array | None = None) -> Parents:
    """Return the parent of every span; within a run only.

    ``device_tracks`` is a mask over tracks: those of a device's streams, whose spans no interval of
    the host's threads can claim. A kernel there has a launch, or no parent.
    """
    parent, ambiguous = np.full(len(spans), -1, "i8"), np.zeros(len(spans), bool)
    told = _told(spans, parent)
    on_device = np.zeros(len(spans), bool) if device_tracks is None else device_tracks[spans.track]
    open_ = ~told & ~on_device
    for level in range(1, len(LEVELS)):
        of_level = np.flatnonzero(open_ & (spans.level == level))
        for above in range(level - 1, -1, -1):
            if not len(of_level):
                break
            candidates = np.flatnonzero((spans.level == above) & ~on_device)
            found, doubt = _inside(spans, of_level, candidates)
            has = found >= 0
            parent[of_level[has]], ambiguous[of_level[has]] = found[has], doubt[has]
            of_level = of_level[~has]
    return Parents(parent, ambiguous)


def _told(spans: Spans, parent: Array) -> Array:
    """Give parents to the spans whose cause is told by an id, whatever the clocks say; return which
    these are.

    A library call has the number of the layer that it was made in, if CUPTI was told. A kernel has
    the correlation id of its launch; a runtime call and the driver call inside of it share one: the
    last to start is the launch.
    """
    done = np.zeros(len(spans), bool)
    for below, above, column in (
        (_LIBRARY, _LAYER, spans.external),
        (_KERNEL, _LIBRARY, spans.correlation),
    ):
        causes = np.flatnonzero((spans.level == above) & (column != 0))
        caused = np.flatnonzero((spans.level == below) & (column != 0))
        if len(causes) and len(caused):
            order = causes[np.lexsort((spans.start[causes], column[causes], spans.run[causes]))]
            keys, wanted = _keys(spans, column, order, caused)
            place = np.searchsorted(keys, wanted, side="right") - 1
            hit = (place >= 0) & (keys[place] == wanted)
            parent[caused[hit]] = order[place[hit]]
            done[caused[hit]] = True
    return done


def _keys(spans: Spans, column: Array, first: Array, second: Array) -> tuple[Array, Array]:
    """Return one number for each pair of run and id, in the pairs' order, for both sets."""
    both = np.concatenate([first, second])
    _, numbers = np.unique(column[both], return_inverse=True)
    keys = spans.run[both].astype("i8") * (len(both) + 1) + numbers.reshape(-1)
    return keys[: len(first)], keys[len(first) :]


def _inside(spans: Spans, inner: Array, outer: Array) -> tuple[Array, Array]:
    """Return for each of ``inner`` the smallest of ``outer`` around it on its track (-1.

    None), and the doubts.
    """
    found, doubt = np.full(len(inner), -1, "i8"), np.zeros(len(inner), bool)
    by_track = np.argsort(spans.track[outer], kind="stable")
    tracks = spans.track[outer][by_track]
    queries = np.argsort(spans.track[inner], kind="stable")
    of_query = spans.track[inner][queries]
    for track in np.unique(of_query).tolist():
        some = queries[slice(*np.searchsorted(of_query, [track, track + 1]).tolist())]
        around = outer[by_track[slice(*np.searchsorted(tracks, [track, track + 1]).tolist())]]
        place, unsure = containers(
            spans.start[around], spans.end[around], spans.start[inner[some]], spans.end[inner[some]]
        )
        has = place >= 0
        found[some[has]] = around[place[has]]
        doubt[some] = unsure
    return found, doubt


def containers(
    start: Array, end: Array, inner_start: Array, inner_end: Array
) -> tuple[Array, Array]:
    """Return for each inner interval the index of the last-started interval that contains it, and
    the doubts.

    Of nested intervals that is the smallest. It is in doubt where another one contains the inner
    interval too and the two cross, so that neither is inside of the other. O((n + m) log n).
    """
    order = np.lexsort((np.arange(len(start)), -end, start))
    ends = end[order]
    up, crossing = _enclosing(start[order], ends)
    place = np.searchsorted(start[order], inner_start, side="right") - 1
    while True:
        outside = (
            (place >= 0) & (ends[place] < inner_end) if len(ends) else np.zeros(len(place), bool)
        )
        if not outside.any():
            break
        place[outside] = up[place[outside]]
    doubt = _doubts(ends, place, inner_end) if crossing else np.zeros(len(place), bool)
    return np.where(place >= 0, order[place] if len(order) else -1, -1), doubt


def _enclosing(start: Array, end: Array) -> tuple[Array, bool]:
    """Return for intervals by (start, -end) the last one before each that ends no earlier, and
    whether any cross.
    """
    up, crossing, stack = np.full(len(start), -1, "i8"), False, list[int]()
    starts, ends = start.tolist(), end.tolist()
    for index, (begin, close) in enumerate(zip(starts, ends, strict=True)):
        while stack and ends[stack[-1]] < close:
            crossing |= ends[stack.pop()] > begin
        up[index] = stack[-1] if stack else -1
        stack.append(index)
    return up, crossing


def _doubts(ends: Array, place: Array, inner_end: Array) -> Array:
    """Return where an interval that starts earlier and ends in [inner end, end of the chosen one)
    exists.
    """
    doubt, seen, next_ = np.zeros(len(place), bool), list[int](), 0
    for query in np.argsort(place, kind="stable").tolist():
        chosen = int(place[query])
        if chosen < 0:
            continue
        while next_ < chosen:
            bisect.insort(seen, int(ends[next_]))
            next_ += 1
        first = bisect.bisect_left(seen, int(inner_end[query]))
        doubt[query] = first < len(seen) and seen[first] < ends[chosen]
    return doubt


def ancestors(spans: Spans, parent: Array, level: str) -> Array:
    """Return for each span its nearest ancestor of ``level``, itself if it is one, or -1."""
    wanted = LEVELS.index(level)
    found = np.arange(len(spans))
    while True:
        above = (found >= 0) & (spans.level[found] != wanted) if len(spans) else np.zeros(0, bool)
        if not above.any():
            return found
        found[above] = parent[found[above]]


def sums_by(owner: Array, value: Array, count: int) -> Array:
    """Return the sum of ``value`` for each of ``count`` owners; values of owner -1 are left out."""
    owned = owner >= 0
    return np.bincount(owner[owned], weights=value[owned], minlength=count)
