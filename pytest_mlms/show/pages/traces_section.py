"""Sections of a trace: timelines, layers, shares of time, and the roofline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pytest_mlms.decide.upgrade.labels import percent
from pytest_mlms.measure.trace.context import TraceContext
from pytest_mlms.measure.trace.records import TraceSummary
from pytest_mlms.measure.trace.summary import device_time, model_latency
from pytest_mlms.show.pages.canvas import Figure
from pytest_mlms.show.pages.item import ItemView
from pytest_mlms.show.pages.layers import layers_chart, slowest_chart, types_chart, types_of
from pytest_mlms.show.pages.roofline import BOUNDS, roofline_chart
from pytest_mlms.show.pages.scales import microseconds
from pytest_mlms.show.pages.section import NOTED_FIGURES, Context, Section
from pytest_mlms.show.pages.shares import shares_chart
from pytest_mlms.show.pages.timeline import timeline_chart
from pytest_mlms.show.pages.traces import Timeline, read_trace, roof_points, timelines_of


def figures_of(item: ItemView) -> Context | None:
    """Return the pictures of the item's trace; None where it has none, or none that can be read."""
    context = read_trace(item)
    if context is None:
        return None
    figures = list(_figures(context))
    notes = [] if item.trace is None else list(_notes(item.trace))
    return {"figures": figures, "notes": notes} if figures or notes else None


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


def _figures(context: TraceContext) -> Iterator[Figure]:
    paints = types_of(context.layers)
    for timeline in timelines_of(context.trace):
        yield Figure(_timeline_caption(timeline), timeline_chart(timeline, paints))
    if context.layers:
        yield Figure(_layers_caption(context), layers_chart(context.layers, paints))
        yield Figure("the slowest layers", slowest_chart(context.layers, paints))
        yield Figure("time by type of layer", types_chart(context.layers, paints))
    shares = _shares(context)
    if shares:
        yield Figure(f"where the time of a call goes: {_in_words(shares)}", shares_chart(shares))
    yield from _roofline(context, paints)


def _timeline_caption(timeline: Timeline) -> str:
    side = "a request, on pytest's side" if timeline.level == "application" else "a call"
    caption = f"{side}, at level {timeline.level}: {microseconds(timeline.us)}"
    caption = f"{caption}, the median of {timeline.calls:,} traced"
    if timeline.left_out:
        rest = microseconds(timeline.left_out_us)
        return f"{caption}; without {timeline.left_out:,} shorter spans, {rest} together"
    return caption


def _layers_caption(context: TraceContext) -> str:
    slowest = max(context.layers, key=lambda layer: layer.latency_us)
    return (
        f"{len(context.layers):,} layers in the order in which they run; the slowest is "
        f"{slowest.name}, {microseconds(slowest.latency_us)}"
    )


def _shares(context: TraceContext) -> dict[str, float]:
    """Return the parts of a call: what a GPU does, else in layers and around them."""
    gpu = device_time(context.trace)
    if gpu is not None:
        call_us = context.latency_us or model_latency(context.trace, "kernel") or 0.0
        return {
            "GPU, kernels": gpu.kernels_us,
            "GPU, copies alone": gpu.busy_us - gpu.kernels_us,
            "GPU idle": max(call_us - gpu.busy_us, 0.0),
        }
    time = context.layer_time
    if time is None:
        return {}
    around = max(time.call_us - time.layers_us, 0.0)
    return {"in layers": time.layers_us, "around them": around}


def _in_words(shares: Mapping[str, float]) -> str:
    total = sum(shares.values()) or 1.0
    return ", ".join(f"{name} {percent(us / total, '.2g')}" for name, us in shares.items())


def _roofline(context: TraceContext, paints: Mapping[str, str]) -> Iterator[Figure]:
    peaks = context.metadata.peaks
    model, layers = roof_points(context)
    if peaks is None or not (layers or model):
        return
    caption = f"roofline of the device, by {peaks.how}"
    if model is not None:
        reached = f"the model reaches {percent(model.efficiency)} of its roof"
        caption = f"{caption}; {reached}, {BOUNDS[model.bound]}"
    yield Figure(caption, roofline_chart(peaks, model, layers, paints))


TIME = Section("Where the time went", NOTED_FIGURES, figures_of)
"""Pictures of a trace, also of an item that was traced because it failed."""
