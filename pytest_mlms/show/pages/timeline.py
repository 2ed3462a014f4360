"""Chart of a request over time: a bar for each span, with what is nested below it."""

from __future__ import annotations

from collections.abc import Mapping

from markupsafe import Markup

from pytest_mlms.core.text import shortened
from pytest_mlms.show.pages.canvas import Plot, around
from pytest_mlms.show.pages.scales import Axis, Scale, microsecond_tick, microseconds, rows_axis
from pytest_mlms.show.pages.traces import Timeline, TimelineSpan

_CHARACTERS = 412.0 / 7.4  # that the frame of a chart has room for, about
_LEAST_ROOM = 16  # characters of a name that is shortened
_UNTYPED = ("c2", "a")
"""Paints of spans without a type, which take turns."""


def timeline_chart(timeline: Timeline, paints: Mapping[str, str]) -> Markup:
    """Return one request: a lane for each level, and below it what is nested."""
    label = f"one request at level {timeline.level}: {microseconds(timeline.us)}"
    times = Scale(0.0, timeline.us or 1.0)
    axis = Axis("time since the request began", times, microsecond_tick)
    plot = Plot(label, axis, rows_axis(timeline.lanes))
    spans = sorted(timeline.spans, key=lambda span: (span.lane, span.start))
    for number, span in enumerate(spans):
        paint = paints.get(span.type) or _UNTYPED[number % 2]
        lane = around(span.lane, 0.4)
        plot.bar((span.start, span.end), lane, paint, _in_words(span))
        _add_name(plot, timeline, span)
    return plot.svg()


def _in_words(span: TimelineSpan) -> str:
    start = microseconds(span.start)
    words = f"{span.name}: {microseconds(span.length)} from {start}"
    if span.type:
        words += f", {span.type}"
    return words


def _add_name(plot: Plot, timeline: Timeline, span: TimelineSpan) -> None:
    """Write the name on a bar that has room for it; others have it in their tooltips."""
    share = span.length / (timeline.us or 1.0)
    room = int(share * _CHARACTERS) - 1
    needed = min(len(span.name), _LEAST_ROOM)
    if room >= needed:
        name = shortened(span.name, room)
        plot.words(span.middle, span.lane + 0.2, name, "middle", "paper")
