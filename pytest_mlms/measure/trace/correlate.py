"""The parent of every span, computed on columns, and the nesting and means of intervals."""

from __future__ import annotations

import bisect
import math
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np

from pytest_mlms.core.arrays import Array
from pytest_mlms.measure.trace import LEVELS
from pytest_mlms.measure.trace.spans import Spans, Trace

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


@dataclass(frozen=True, eq=False)
class Parents:
    """The index of each span's parent (-1: none), and whether another span could be it as well."""

    index: Array
    ambiguous: Array


class _Link(NamedTuple):
    """A column of IDs that two levels share: causes are above, what they caused is below."""

    below: str
    above: str
    column: str


_LINKS = (
    _Link("library", "layer", "external"),
    _Link("kernel", "library", "correlation"),
)


def parents_of(trace: Trace) -> Parents:
    """Return the parent of every span of a trace."""
    return find_parents(trace.spans, trace.devices)


def find_parents(spans: Spans, device_tracks: Array | None = None) -> Parents:
    """Return the parent of every span, which is in the same run.

    ``device_tracks`` is a mask over tracks: those that are a device's streams. A kernel there has a
    launch or no parent, because no interval of the host's threads contains it.
    """
    on_device = np.zeros(len(spans), bool)
    if device_tracks is not None:
        on_device = device_tracks[spans.track]
    parents = _parents_by_id(spans)
    by_time = (parents.index < 0) & ~on_device
    for level in range(1, len(LEVELS)):
        at_level = spans.level == level
        children = np.flatnonzero(by_time & at_level)
        for above in range(level - 1, -1, -1):
            if not len(children):
                break
            at_level = spans.level == above
            candidates = np.flatnonzero(at_level & ~on_device)
            children = _assign_containers(spans, parents, children, candidates)
    return parents


def ancestors(spans: Spans, parent: Array, level: str) -> Array:
    """Return each span's nearest ancestor at ``level``: itself if it is at that level, or -1."""
    found = np.arange(len(spans))
    at_level = spans.at(level)
    if not len(spans):
        return found
    while True:
        exists = found >= 0
        below = exists & ~at_level[found]
        if not below.any():
            return found
        found[below] = parent[found[below]]


def sums_by(owner: Array, value: Array, count: int) -> Array:
    """Return the sum of ``value`` of each of ``count`` owners; values of owner -1 are left out."""
    owned = owner >= 0
    return np.bincount(owner[owned], weights=value[owned], minlength=count)


def _parents_by_id(spans: Spans) -> Parents:
    """Return the parents that IDs determine, whatever the clocks say.

    Several causes of one run may share an ID, as a runtime call and the driver call inside of it
    do: the last to start is the launch.
    """
    count = len(spans)
    index = np.full(count, -1, "i8")
    for link in _LINKS:
        ids = spans.column(link.column)
        has_id = ids != 0
        causes = np.flatnonzero(has_id & spans.at(link.above))
        caused = np.flatnonzero(has_id & spans.at(link.below))
        if len(causes) and len(caused):
            index[caused] = _causes_by_id(spans, ids, causes, caused)
    return Parents(index, ambiguous=np.zeros(count, bool))


def _causes_by_id(spans: Spans, ids: Array, causes: Array, caused: Array) -> Array:
    """Return the last of ``causes`` with the run and the ID of each of ``caused``, or -1."""
    start = spans.start[causes]
    run = spans.run[causes]
    causes = causes[np.lexsort((start, ids[causes], run))]
    both = np.concatenate([causes, caused])
    keys = _run_and_id(spans.run[both], ids[both])
    cause_keys = keys[: len(causes)]
    wanted = keys[len(causes) :]
    place = np.searchsorted(cause_keys, wanted, side="right") - 1
    is_same = cause_keys[place] == wanted
    exists = place >= 0
    return np.where(exists & is_same, causes[place], -1)


def _run_and_id(run: Array, ids: Array) -> Array:
    """Return one number for each pair of run and ID, in the order of the pairs."""
    _, numbers = np.unique(ids, return_inverse=True)
    ids_of_run = len(ids) + 1
    first_of_run = run.astype("i8") * ids_of_run
    return first_of_run + numbers.reshape(-1)


def _assign_containers(spans: Spans, parents: Parents, children: Array, candidates: Array) -> Array:
    """Set the parents of the children that a candidate contains; return the other children."""
    remaining = []
    for inner, outer in _by_track(spans, children, candidates):
        found = find_containers(_intervals(spans, outer), _intervals(spans, inner))
        contained = found.index >= 0
        chosen = inner[contained]
        parents.index[chosen] = outer[found.index[contained]]
        parents.ambiguous[chosen] = found.ambiguous[contained]
        remaining.append(inner[~contained])
    return np.concatenate(remaining)


def _intervals(spans: Spans, chosen: Array) -> Intervals:
    return Intervals(spans.start[chosen], spans.end[chosen])


def _by_track(spans: Spans, inner: Array, outer: Array) -> Iterator[tuple[Array, Array]]:
    """Yield the inner and the outer spans of each track that has an inner one."""
    inner = _sorted_by_track(spans, inner)
    outer = _sorted_by_track(spans, outer)
    inner_tracks = spans.track[inner]
    outer_tracks = spans.track[outer]
    for track in np.unique(inner_tracks).tolist():
        inner_range = _range_of(inner_tracks, track)
        outer_range = _range_of(outer_tracks, track)
        yield inner[inner_range], outer[outer_range]


def _sorted_by_track(spans: Spans, indices: Array) -> Array:
    order = np.argsort(spans.track[indices], kind="stable")
    return indices[order]


def _range_of(ordered: Array, value: int) -> slice:
    """Return where a sorted column has a value."""
    first = np.searchsorted(ordered, value, side="left")
    last = np.searchsorted(ordered, value, side="right")
    return slice(int(first), int(last))
