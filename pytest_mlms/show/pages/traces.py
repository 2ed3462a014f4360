"""A trace: one request as a timeline, where the time of its layers goes, and what tracing added."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from pytest_mlms.core.arrays import Array
from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.files import DamagedFile, content_size
from pytest_mlms.core.text import shortened
from pytest_mlms.decide.upgrade.labels import percent
from pytest_mlms.measure.trace import LEVELS
from pytest_mlms.measure.trace.records import TraceSummary
from pytest_mlms.measure.trace.spans import Trace
from pytest_mlms.measure.trace.storage import load_trace
from pytest_mlms.measure.trace.summary import TraceContext
from pytest_mlms.show.pages.canvas import Context, Figure, Plot, around
from pytest_mlms.show.pages.drawing import Axis, Scale, microsecond_tick, microseconds, rows_axis
from pytest_mlms.show.pages.item import ItemView
from pytest_mlms.show.pages.layers import layers_figures, roofline_figures, types_of

_MOST_BYTES = 256 * 2**20  # of the content of a file of spans
_MOST_SPANS = 240  # of a timeline
_MOST_DEPTH = 6  # lanes of one level
_DEEPEST_FIRST = ("kernel", "library", "layer", "model")
_CHARACTERS = 412.0 / 7.4  # that the frame of a chart has room for, about
_LEAST_ROOM = 16  # characters of a name that is shortened
_UNTYPED = ("c2", "a")
"""Paints of spans without a type, which take turns."""


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


def trace_section(item: ItemView) -> Context | None:
    """Return the pictures of an item's trace, also of one that was traced because it failed.

    None where it has no trace, or none that can be read.
    """
    context = read_trace(item)
    if context is None:
        return None
    figures = []
    paints = types_of(context.layers)
    for timeline in timelines_of(context.trace):
        side = "a request, on pytest's side" if timeline.level == "application" else "a call"
        caption = f"{side}, at level {timeline.level}: {microseconds(timeline.us)}"
        caption = f"{caption}, the median of {timeline.calls:,} traced"
        if timeline.left_out:
            rest = microseconds(timeline.left_out_us)
            caption = f"{caption}; without {timeline.left_out:,} shorter spans, {rest} together"
        figures.append(Figure(caption, timeline_chart(timeline, paints)))
    figures += layers_figures(context, paints)
    figures += roofline_figures(context, paints)
    notes = [] if item.trace is None else list(_notes(item.trace))
    return {"figures": figures, "notes": notes} if figures or notes else None


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


def _notes(summary: TraceSummary) -> Iterator[str]:
    """Yield what tracing added, and what could not be seen, with the reason."""
    for run in summary.runs:
        if run.overhead is not None and run.plain_us and run.traced_us and not run.void:
            times = f"{microseconds(run.plain_us)} without, {microseconds(run.traced_us)} with it"
            added = percent(run.overhead, ".2g")
            yield f"Tracing level {run.level} added {added} to a call: {times}"
    for level, reason in summary.unseen.items():
        yield f"Nothing to see at level {level}: {reason}"
    for level, reason in summary.faults.items():
        yield f"Level {level} was cut short: {reason}"
    if summary.ambiguous:
        yield f"The parents of {summary.ambiguous:,} spans are in doubt"


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


def timeline_chart(timeline: Timeline, paints: Mapping[str, str]) -> Markup:
    """Return one request: a lane for each level, and below it what is nested.

    A bar that has room for it has its name, others have it in their tooltips.
    """
    length = timeline.us or 1.0
    plot = Plot(
        f"one request at level {timeline.level}: {microseconds(timeline.us)}",
        Axis("time since the request began", Scale(0.0, length), microsecond_tick),
        rows_axis(timeline.lanes),
    )
    spans = sorted(timeline.spans, key=lambda span: (span.lane, span.start))
    for number, span in enumerate(spans):
        paint = paints.get(span.type) or _UNTYPED[number % 2]
        title = f"{span.name}: {microseconds(span.length)} from {microseconds(span.start)}"
        if span.type:
            title += f", {span.type}"
        plot.bar((span.start, span.end), around(span.lane, 0.4), paint, title)
        room = int(span.length / length * _CHARACTERS) - 1
        if room >= min(len(span.name), _LEAST_ROOM):
            name = shortened(span.name, room)
            plot.words(span.middle, span.lane + 0.2, name, "middle", "paper")
    return plot.svg()
