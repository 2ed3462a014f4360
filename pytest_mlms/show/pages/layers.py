"""Layers of a trace: in the order in which they run, by time and type, shares, and the roofline.

Sources: XSP (Li and others, IPDPS 2020, https://arxiv.org/abs/1908.06869) of the figures; Williams,
Waterman and Patterson, Roofline, CACM 2009, https://doi.org/10.1145/1498765.1498785.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from markupsafe import Markup

from pytest_mlms.decide.upgrade.labels import percent
from pytest_mlms.measure.trace.records import Peaks
from pytest_mlms.measure.trace.roofline import has_roof
from pytest_mlms.measure.trace.summary import TraceContext, device_time, model_latency
from pytest_mlms.measure.trace.tables import LayerRow
from pytest_mlms.show.pages.canvas import Figure, Plot, around
from pytest_mlms.show.pages.drawing import (
    SERIES,
    Axis,
    Scale,
    linear_scale,
    log_scale,
    microsecond_tick,
    microseconds,
    paint_of,
    rows_axis,
)

NO_TYPE = "no type"
"""The name of a type that a framework doesn't tell."""

_MOST_LAYERS = 240
_MOST_NAMED = 5  # layers in the text for screen readers
_MOST_TYPES = 10
_OTHERS = "others"
_ROOM = 1.18  # of the longest bar, for the text behind it


class _TimeBar(NamedTuple):
    """A bar of microseconds, and its share of all layers."""

    name: str
    us: float
    share: float
    paint: str
    title: str


def layers_figures(context: TraceContext, paints: Mapping[str, str]) -> Iterator[Figure]:
    """Yield the pictures of a trace's layers, and of the parts of a call."""
    layers = context.layers
    if layers:
        slowest = max(layers, key=lambda layer: layer.latency_us)
        caption = (
            f"{len(layers):,} layers in the order in which they run; the slowest is "
            f"{slowest.name}, {microseconds(slowest.latency_us)}"
        )
        yield Figure(caption, layers_chart(layers, paints))
        yield Figure("the slowest layers", slowest_chart(layers, paints))
        yield Figure("time by type of layer", types_chart(layers, paints))
    parts = _parts_of_call(context)
    if parts:
        total = sum(parts.values()) or 1.0
        words = [f"{name} {percent(us / total, '.2g')}" for name, us in parts.items()]
        yield Figure(f"where the time of a call goes: {', '.join(words)}", shares_chart(parts))


def types_of(layers: Sequence[LayerRow]) -> dict[str, str]:
    """Return a paint for each type of layers, those with most time first; the rest share one."""
    kinds = list(_times_by_type(layers))
    paints = dict.fromkeys(kinds, "muted")
    for number, kind in enumerate(kinds[: len(SERIES)]):
        paints[kind] = paint_of(number)
    return paints


def _times_by_type(layers: Sequence[LayerRow]) -> dict[str, float]:
    """Return the microseconds of each type, the longest first."""
    sums: dict[str, float] = {}
    for layer in layers:
        sums[layer.type] = sums.get(layer.type, 0.0) + layer.latency_us
    return dict(sorted(sums.items(), key=lambda pair: -pair[1]))


def _slowest_first(layers: Sequence[LayerRow]) -> Sequence[LayerRow]:
    return sorted(layers, key=lambda layer: -layer.latency_us)


def layers_chart(layers: Sequence[LayerRow], paints: Mapping[str, str]) -> Markup:
    """Return the time of each layer in the order in which they run, coloured by type.

    Of very many layers the slowest are shown, at their places.
    """
    slowest = _slowest_first(layers)
    count = len(layers)
    named = [f"{layer.name} {microseconds(layer.latency_us)}" for layer in slowest[:_MOST_NAMED]]
    places = Scale(-0.6, count - 0.4)
    times = linear_scale([layer.latency_us for layer in layers], zero=True)
    plot = Plot(
        f"time of {count:,} layers in execution order; slowest: {', '.join(named)}",
        Axis("layer, in the order in which they run", places, "{:.0f}".format),
        Axis("time of a call", times, microsecond_tick),
    )
    for layer in slowest[:_MOST_LAYERS]:
        place = around(layer.index, 0.4)
        plot.bar(place, (0, layer.latency_us), paints[layer.type], _in_words(layer))
    for kind in list(paints)[: len(SERIES)]:
        plot.legend(kind or NO_TYPE, paints[kind])
    return plot.svg()


def slowest_chart(layers: Sequence[LayerRow], paints: Mapping[str, str], most: int = 10) -> Markup:
    """Return the slowest layers by name, with their shares of all layers."""
    bars = []
    for layer in _slowest_first(layers)[:most]:
        paint = paints[layer.type]
        bars.append(_TimeBar(layer.name, layer.latency_us, layer.share, paint, _in_words(layer)))
    return _bars_chart("slowest layers", bars)


def _in_words(layer: LayerRow) -> str:
    time = _time_in_words(layer.latency_us, layer.share)
    return f"{layer.index} {layer.name}: {time}, {layer.type} {layer.shape}".rstrip()


def _time_in_words(us: float, share: float) -> str:
    return f"{microseconds(us)}, {percent(share)} of all layers"


def types_chart(layers: Sequence[LayerRow], paints: Mapping[str, str]) -> Markup:
    """Return the time of the layers of each type, and its share."""
    times = list(_times_by_type(layers).items())
    shown = times[:_MOST_TYPES]
    rest = sum(us for _, us in times[_MOST_TYPES:])
    if rest:
        shown.append((_OTHERS, rest))
    total = sum(us for _, us in shown) or 1.0
    bars = []
    for kind, us in shown:
        name = kind or NO_TYPE
        title = f"{name}: {_time_in_words(us, us / total)}"
        bars.append(_TimeBar(name, us, us / total, paints.get(kind, "muted"), title))
    return _bars_chart("time by type of layer", bars)


def _bars_chart(heading: str, bars: Sequence[_TimeBar]) -> Markup:
    """Return a row for each bar, with its share behind it."""
    words = [f"{bar.name} {percent(bar.share)}" for bar in bars]
    longest = max(bar.us for bar in bars)
    times = Scale(0.0, longest * _ROOM or 1.0)
    plot = Plot(
        f"{heading}: {', '.join(words)}",
        Axis("time of a call", times, microsecond_tick),
        rows_axis([bar.name for bar in bars]),
    )
    for row, bar in enumerate(bars):
        plot.bar((0, bar.us), around(row, 0.36), bar.paint, bar.title)
        plot.beside(bar.us, row, percent(bar.share, ".2g"))
    return plot.svg()


def _parts_of_call(context: TraceContext) -> dict[str, float]:
    """Return the microseconds of what a GPU does in a call, else of layers and around them."""
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
    rest = max(time.call_us - time.layers_us, 0.0)
    return {"in layers": time.layers_us, "around them": rest}


def shares_chart(times: Mapping[str, float]) -> Markup:
    """Return the parts of a call side by side in one bar: name -> microseconds."""
    total = sum(times.values()) or 1.0
    words = [f"{name} {percent(us / total, '.3g')}" for name, us in times.items()]
    axis = Axis("time of a call", Scale(0.0, total), microsecond_tick)
    plot = Plot(", ".join(words), axis, rows_axis([""]))
    begin = 0.0
    for number, (name, us) in enumerate(times.items()):
        paint = paint_of(number)
        share = us / total
        end = begin + us
        title = f"{name}: {microseconds(us)}, {percent(share)}"
        plot.bar((begin, end), around(0, 0.42), paint, title)
        plot.legend(f"{name} {percent(share, '.2g')}", paint)
        begin = end
    return plot.svg()


_BOUNDS = {
    "compute": "bound by the peak of operations",
    "memory": "bound by memory",
    "cache": "faster than memory: its data stays in caches",
    "above peak": "above the peak: fewer operations were done than counted, or the peak is too low",
}
"""Bound of a point of a roofline -> its words."""

_OTHER_TYPES = "muted"


@dataclass(frozen=True)
class RoofPoint:
    """A layer or the model under the roof: operations per byte, and 10^9 of them per second."""

    name: str
    type: str
    intensity: float
    gflops_per_s: float
    efficiency: float
    bound: str


def roofline_figures(context: TraceContext, paints: Mapping[str, str]) -> Iterator[Figure]:
    """Yield the roofline where the peaks of the device and a point are known."""
    peaks = context.metadata.peaks
    model, layers = roof_points(context)
    if peaks is None or not (layers or model):
        return
    caption = f"roofline of the device, by {peaks.how}"
    if model is not None:
        reached = f"the model reaches {percent(model.efficiency)} of its roof"
        caption = f"{caption}; {reached}, {_BOUNDS[model.bound]}"
    yield Figure(caption, roofline_chart(peaks, model, layers, paints))


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


def roofline_chart(
    peaks: Peaks, model: RoofPoint | None, layers: Sequence[RoofPoint], paints: Mapping[str, str]
) -> Markup:
    """Return layers and the model under the roof of the device, on logarithmic axes."""
    points = [*layers]
    if model is not None:
        points.append(model)
    ridge = peaks.flops / peaks.bytes
    intensities = log_scale([ridge, *(point.intensity for point in points)])
    gflops = peaks.flops / 1e9

    # What the device can reach: up to the ridge by memory, then flat.
    roof = [(ridge, gflops), (intensities.high, gflops)]
    if intensities.low < ridge:
        least = intensities.low * peaks.bytes / 1e9
        roof.insert(0, (intensities.low, min(least, gflops)))

    heights = [height for _, height in roof] + [point.gflops_per_s for point in points]
    plot = Plot(
        f"{len(layers):,} layers under a roof of {gflops:,.0f} GFLOP/s",
        Axis("operations for each byte, logarithmic", intensities),
        Axis("GFLOP/s, logarithmic", log_scale(heights)),
    )
    title = f"peak {gflops:,.0f} GFLOP/s; memory {peaks.bytes / 1e9:,.1f} GB/s"
    plot.line(roof, "ink", title)
    for point in layers:
        _add_point(plot, point, paints.get(point.type, _OTHER_TYPES), radius=4)
    if model is not None:
        _add_point(plot, model, "bad", radius=6)
        plot.legend(model.name, "bad")
    for kind in dict.fromkeys(point.type for point in layers):
        paint = paints.get(kind, _OTHER_TYPES)
        if paint != _OTHER_TYPES:
            plot.legend(kind or NO_TYPE, paint)
    return plot.svg()


def _add_point(plot: Plot, point: RoofPoint, paint: str, radius: float) -> None:
    parts = [
        f"{point.name}: {point.gflops_per_s:,.3g} GFLOP/s",
        f"{percent(point.efficiency)} of the roof",
        f"{point.intensity:,.3g} operations for each byte",
        _BOUNDS[point.bound],
    ]
    plot.dot(point.intensity, point.gflops_per_s, paint, ", ".join(parts), radius)
