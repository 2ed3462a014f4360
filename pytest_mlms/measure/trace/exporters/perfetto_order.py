"""Order of the begins and ends of spans, as Perfetto must read them to nest spans on a track."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

_ENDS = np.array(0, "i1")
_BEGINS = np.array(1, "i1")
_EMPTY = np.array(2, "i1")


@dataclass(frozen=True, eq=False)
class EventOrder:
    """The index of the span of each event, and whether the event is its begin."""

    span: Array
    begins: Array


def event_order(start: Array, end: Array) -> EventOrder:
    """Return the begins and ends of spans in the order in which they must follow.

    At the same time, ends of earlier spans come first, the innermost before the others. Begins
    follow, the outermost before the others. A span of no length begins and ends inside of those.
    """
    count = len(start)
    keys = _sort_keys(start, end)
    order = np.lexsort(keys)
    return EventOrder(span=order % count, begins=order < count)


def _sort_keys(start: Array, end: Array) -> list[Array]:
    """Return the keys of all begins and then of all ends, the most important last.

    Columns that are needed no longer are freed early: there may be a million events.
    """
    count = len(start)
    index = np.arange(count)
    empty = start == end
    is_end = np.zeros(2 * count, bool)
    is_end[count:] = True
    tie = _both(index, -index, empty, index)
    depth = _both(-end, -start, empty, index)
    group = _both(_BEGINS, _ENDS, empty, _EMPTY)
    time = np.concatenate([start, end])
    return [is_end, tie, depth, group, time]


def _both(begins: Array, ends: Array, empty: Array, of_empty: Array) -> Array:
    """Return a key of all events, which spans of no length have another value of."""
    of_begins = np.where(empty, of_empty, begins)
    of_ends = np.where(empty, of_empty, ends)
    return np.concatenate([of_begins, of_ends])


def lanes(start: Array, end: Array) -> Array:
    """Return a lane for each span, so that spans of one lane follow or contain each other.

    Lane 0 is the first choice.
    """
    lane = np.zeros(len(start), "i8")
    if _is_nested(start, end):
        return lane
    open_ends: list[list[int]] = []
    for index in np.lexsort((-end, start)).tolist():
        span_end = int(end[index])
        number = _free_lane(open_ends, int(start[index]), span_end)
        lane[index] = number
        open_ends[number].append(span_end)
    return lane


def _free_lane(open_ends: list[list[int]], start: int, end: int) -> int:
    """Return the first lane whose spans that are open at ``start`` end no earlier than ``end``."""
    for number, ends in enumerate(open_ends):
        while ends and ends[-1] <= start:
            ends.pop()
        if not ends or ends[-1] >= end:
            return number
    open_ends.append([])
    return len(open_ends) - 1


def _is_nested(start: Array, end: Array) -> bool:
    """Return whether no two spans cross: each end closes the last begin at its depth."""
    events = event_order(start, end)
    steps = np.where(events.begins, 1, -1)
    open_after = np.cumsum(steps)
    depth = open_after - events.begins
    order = np.argsort(depth, kind="stable")
    by_depth = events.span[order]
    begun = by_depth[0::2]
    ended = by_depth[1::2]
    return bool((begun == ended).all())
