"""The roofline of a trace: layers and the model under the peaks of a device.

Source: Williams, Waterman and Patterson, Roofline, CACM 2009, https://doi.org/10.1145/1498765.1498785.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from pytest_mlms.decide.upgrade.labels import percent
from pytest_mlms.measure.trace.context import TraceContext
from pytest_mlms.measure.trace.records import Peaks
from pytest_mlms.measure.trace.roofline import has_roof
from pytest_mlms.show.pages.canvas import Figure, Plot
from pytest_mlms.show.pages.layers import NO_TYPE
from pytest_mlms.show.pages.scales import Axis, log_scale

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
