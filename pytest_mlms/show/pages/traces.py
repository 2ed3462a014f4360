"""View of a trace: one request as a timeline, and where the time of its layers goes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_mlms.core.arrays import DamagedFile, content_size
from pytest_mlms.core.errors import MlmsError
from pytest_mlms.measure.trace import LEVELS
from pytest_mlms.measure.trace.context import TraceContext
from pytest_mlms.measure.trace.roofline import has_roof
from pytest_mlms.measure.trace.spans import Trace
from pytest_mlms.measure.trace.storage import load_trace
from pytest_mlms.show.pages.item import ItemView

Array = NDArray[Any]

_MOST_BYTES = 256 * 2**20  # of the content of a file of spans
_MOST_SPANS = 240  # of a timeline
_MOST_DEPTH = 6  # lanes of one level
_DEEPEST_FIRST = ("kernel", "library", "layer", "model")


@dataclass(frozen=True)
class TimelineSpan:
    """A span: its lane from the top, and its times in microseconds since the request began."""

    lane: int
    start: float
    end: float
    name: str
    type: str

    @property
    def length(self) -> float:
        """The time that it takes, in microseconds."""
        return self.end - self.start

    @property
    def middle(self) -> float:
        """The time at its middle."""
        return (self.start + self.end) / 2


@dataclass(frozen=True)
class Timeline:
    """The spans of one request, at the levels that one run of the trace observed.

    ``lanes`` are the names of the lanes, "" for a lane of what is nested in the one above it.
    ``left_out`` is the number of the shortest spans, which are not shown, and ``left_out_us`` their
    time together. ``calls`` is the number of requests, of which this is the median one.
    """

    level: str
    calls: int
    us: float
    lanes: Sequence[str]
    spans: Sequence[TimelineSpan]
    left_out: int = 0
    left_out_us: float = 0.0


@dataclass(frozen=True)
class RoofPoint:
    """A layer or the model under the roof: operations per byte, and 10^9 of them per second."""

    name: str
    type: str
    intensity: float
    gflops_per_s: float
    efficiency: float
    bound: str


def read_trace(item: ItemView) -> TraceContext | None:
    """Return the trace of an item; None where it is missing, damaged or too large for a page."""
    path = item.artifact("trace.npz")
    try:
        if path is None or content_size(path) > _MOST_BYTES:
            return None
        return TraceContext(load_trace(path))
    except (OSError, DamagedFile, MlmsError):
        return None


def timelines_of(trace: Trace) -> list[Timeline]:
    """Return a request on pytest's side, and a call in the run that saw the innermost level."""
    found = []
    levels = [level for level in _DEEPEST_FIRST if _sees(trace, level)]
    for level in ("application", *levels[:1]):
        timeline = _timeline(trace, level)
        if timeline is not None:
            found.append(timeline)
    return found


def roof_points(context: TraceContext) -> tuple[RoofPoint | None, Sequence[RoofPoint]]:
    """Return the model and its layers under the roof; those without a known point are left out."""
    points = []
    for layer, work in zip(context.layers, context.works, strict=True):
        if not has_roof(layer.type):
            continue
        point = context.roofline_point(work, layer.kernel_us or layer.latency_us)
        if point is not None:
            points.append(_roof_point(layer.name, layer.type, point))
    whole = None
    if not context.is_quantized:
        whole = context.roofline_point(context.total_work, context.latency_us)
    model = None if whole is None else _roof_point("the whole model", "", whole)
    return model, points


def _roof_point(name: str, kind: str, point: Any) -> RoofPoint:
    return RoofPoint(name, kind, point.intensity, point.gflops_per_s, point.efficiency, point.bound)


def _sees(trace: Trace, level: str) -> bool:
    """Return whether a run of a level that counts has spans of it."""
    run = trace.run_at(level)
    if run is None:
        return False
    spans = trace.spans
    number = LEVELS.index(level)
    return bool(((spans.run == run) & (spans.level == number)).any())


def _timeline(trace: Trace, level: str) -> Timeline | None:
    """Return the median request of the run of a level."""
    run = trace.run_at(level)
    spans = trace.spans
    if run is None:
        return None
    chosen = np.flatnonzero((spans.run == run) & (spans.request >= 0))
    if not len(chosen):
        return None
    requests, first = np.unique(spans.request[chosen], return_inverse=True)
    starts = np.full(len(requests), np.iinfo(np.int64).max)
    ends = np.zeros(len(requests), np.int64)
    np.minimum.at(starts, first, spans.start[chosen])
    np.maximum.at(ends, first, spans.end[chosen])
    median = np.argsort(ends - starts)[len(requests) // 2]
    of_request = chosen[first == median]
    lengths = spans.end[of_request] - spans.start[of_request]
    longest = np.argsort(-lengths, kind="stable")
    kept = of_request[np.sort(longest[:_MOST_SPANS])]
    left_out = of_request[longest[_MOST_SPANS:]]
    lanes, shown = _in_lanes(trace, kept, int(starts[median]))
    return Timeline(
        level=level,
        calls=len(requests),
        us=(int(ends[median]) - int(starts[median])) / 1e3,
        lanes=lanes,
        spans=shown,
        left_out=len(left_out),
        left_out_us=float((spans.end[left_out] - spans.start[left_out]).sum()) / 1e3,
    )


def _in_lanes(
    trace: Trace, chosen: Array, begin: int
) -> tuple[Sequence[str], Sequence[TimelineSpan]]:
    """Return the lanes of spans, levels from the outermost, and the spans in these."""
    names: list[str] = []
    shown: list[TimelineSpan] = []
    spans = trace.spans
    for number, level in enumerate(LEVELS):
        of_level = chosen[spans.level[chosen] == number]
        depths = list(_depths(spans.start[of_level], spans.end[of_level]))
        first = len(names)
        if depths:
            names += [level] + [""] * max(depths)
        for index, depth in zip(of_level.tolist(), depths, strict=True):
            shown.append(
                TimelineSpan(
                    lane=first + depth,
                    start=(int(spans.start[index]) - begin) / 1e3,
                    end=(int(spans.end[index]) - begin) / 1e3,
                    name=trace.strings[spans.name[index]],
                    type=trace.strings[spans.type[index]],
                )
            )
    return names, shown


def _depths(starts: Array, ends: Array) -> Iterator[int]:
    """Yield in how many of the others each span lies; the deepest share a lane."""
    order = np.lexsort((-ends, starts))
    depths = np.zeros(len(starts), np.int64)
    open_ends: list[int] = []
    for index in order.tolist():
        open_ends = [end for end in open_ends if end > starts[index]]
        depths[index] = min(len(open_ends), _MOST_DEPTH - 1)
        open_ends.append(int(ends[index]))
    yield from depths.tolist()
