"""Layers of a trace: in the order in which they run, the slowest ones, by type, and shares of time.

Source of the figures: XSP (Li and others, IPDPS 2020, https://arxiv.org/abs/1908.06869).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from markupsafe import Markup

from pytest_mlms.decide.upgrade.labels import percent
from pytest_mlms.measure.trace.context import TraceContext
from pytest_mlms.measure.trace.summary import device_time, model_latency
from pytest_mlms.measure.trace.tables import LayerRow
from pytest_mlms.show.pages.canvas import Figure, Plot, around
from pytest_mlms.show.pages.scales import (
    Axis,
    Scale,
    linear_scale,
    microsecond_tick,
    microseconds,
    rows_axis,
)
from pytest_mlms.show.pages.svg import SERIES, paint_of

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
