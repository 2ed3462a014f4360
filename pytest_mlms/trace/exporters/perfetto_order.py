"""Order of the begins and ends of spans, as Perfetto must read them to nest spans on a track."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["EventOrder", "event_order", "lanes"]

Array = NDArray[Any]

_ENDS = np.int8(0)
_BEGINS = np.int8(1)
_EMPTY = np.int8(2)


class EventOrder(NamedTuple):
    """The index of the span of each event, and whether the event is its begin."""

    span: Array
    begins: Array


def event_order(start: Array, end: Array) -> EventOrder:
    """Return the begins and ends of spans in the order in which they must follow.

    At the same time, ends of earlier spans come first, the innermost before the others. Begins
    follow, the outermost before the others. A span of no length begins and ends inside of those.
    """
    count = len(start)
    index = np.arange(count)
    empty = start == end
    is_end = np.arange(2 * count) >= count
    group = _both(np.where(empty, _EMPTY, _BEGINS), np.where(empty, _EMPTY, _ENDS))
    depth = _both(np.where(empty, index, -end), np.where(empty, index, -start))
    tie = _both(index, np.where(empty, index, -index))
    order = np.lexsort((is_end, tie, depth, group, _both(start, end)))
    return EventOrder(order % count, order < count)


def _both(begins: Array, ends: Array) -> Array:
    """Return a column of all events from those of begins and of ends."""
    return np.concatenate([begins, ends])


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
    depth = np.cumsum(steps) - events.begins
    order = np.argsort(depth, kind="stable")
    by_depth = events.span[order]
    return bool((by_depth[0::2] == by_depth[1::2]).all())
