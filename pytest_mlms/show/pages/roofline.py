"""Chart of the roofline: layers and the model under the peaks of a device.

Source: Williams, Waterman and Patterson, Roofline, CACM 2009, https://doi.org/10.1145/1498765.1498785.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from markupsafe import Markup

from pytest_mlms.decide.upgrade.labels import percent
from pytest_mlms.measure.trace.records import Peaks
from pytest_mlms.show.pages.canvas import Plot, Point
from pytest_mlms.show.pages.layers import NO_TYPE
from pytest_mlms.show.pages.scales import Axis, Scale, log_scale
from pytest_mlms.show.pages.traces import RoofPoint

BOUNDS = {
    "compute": "bound by the peak of operations",
    "memory": "bound by memory",
    "cache": "faster than memory: its data stays in caches",
    "above peak": "above the peak: fewer operations were done than counted, or the peak is too low",
}
"""Bound of a point of a roofline -> its words."""

_OTHER_TYPES = "muted"


def roofline_chart(
    peaks: Peaks, model: RoofPoint | None, layers: Sequence[RoofPoint], paints: Mapping[str, str]
) -> Markup:
    """Return layers and the model under the roof of the device, on logarithmic axes."""
    points = [*layers]
    if model is not None:
        points.append(model)
    ridge = peaks.flops / peaks.bytes
    intensities = log_scale([ridge, *(point.intensity for point in points)])
    roof = _roof(peaks, intensities)
    heights = [height for _, height in roof]
    reached = [point.gflops_per_s for point in points]
    gflops = peaks.flops / 1e9
    plot = Plot(
        f"{len(layers):,} layers under a roof of {gflops:,.0f} GFLOP/s",
        Axis("operations for each byte, logarithmic", intensities),
        Axis("GFLOP/s, logarithmic", log_scale([*heights, *reached])),
    )
    title = f"peak {gflops:,.0f} GFLOP/s; memory {peaks.bytes / 1e9:,.1f} GB/s"
    plot.line(roof, "ink", title)
    for point in layers:
        _add_point(plot, point, paints.get(point.type, _OTHER_TYPES), radius=4)
    if model is not None:
        _add_point(plot, model, "bad", radius=6)
        plot.legend(model.name, "bad")
    _add_types(plot, layers, paints)
    return plot.svg()


def _roof(peaks: Peaks, intensities: Scale) -> Sequence[Point]:
    """Return the line of what the device can reach: up to the ridge by memory, then flat."""
    ridge = peaks.flops / peaks.bytes
    top = peaks.flops / 1e9
    flat = [(ridge, top), (intensities.high, top)]
    if intensities.low >= ridge:
        return flat
    least = intensities.low * peaks.bytes / 1e9
    return [(intensities.low, min(least, top)), *flat]


def _add_point(plot: Plot, point: RoofPoint, paint: str, radius: float) -> None:
    parts = [
        f"{point.name}: {point.gflops_per_s:,.3g} GFLOP/s",
        f"{percent(point.efficiency)} of the roof",
        f"{point.intensity:,.3g} operations for each byte",
        BOUNDS[point.bound],
    ]
    plot.dot(point.intensity, point.gflops_per_s, paint, ", ".join(parts), radius)


def _add_types(plot: Plot, layers: Sequence[RoofPoint], paints: Mapping[str, str]) -> None:
    """Add the types that have colours of their own to the legend."""
    for kind in dict.fromkeys(point.type for point in layers):
        paint = paints.get(kind, _OTHER_TYPES)
        if paint != _OTHER_TYPES:
            plot.legend(kind or NO_TYPE, paint)
