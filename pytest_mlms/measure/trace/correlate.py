"""The parent of every span, computed on columns.

IDs decide first: a kernel belongs to the launch with its correlation ID, and a launch belongs to
the layer whose number CUPTI was given. The parent of any other span is the smallest interval of a
higher level that contains it on the same thread. Where such intervals cross, times alone do not
determine the parent, and the result is marked as ambiguous.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pytest_mlms.measure.trace import LEVELS
from pytest_mlms.measure.trace.intervals import Intervals, find_containers
from pytest_mlms.measure.trace.spans import Spans, Trace

Array = NDArray[Any]


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
