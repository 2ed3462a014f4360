"""Analyses A2 to A7, A12 and A13: layers, layers by type, and layers beside their kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from pytest_mlms.measure.trace.analyses.analysis import (
    Analysis,
    Row,
    for_each_trace,
    share_of,
    sums_by_key,
)
from pytest_mlms.measure.trace.context import TraceContext
from pytest_mlms.measure.trace.tables import LayerRow


def _of_each_layer(name: str, number: str, description: str, *fields: str) -> Analysis:
    """Return an analysis with fields of ``LayerRow`` as its columns."""

    def rows(trace: TraceContext) -> Iterable[Row]:
        for layer in trace.layers:
            yield tuple(getattr(layer, field) for field in fields)

    return Analysis(
        name=name,
        number=number,
        description=description,
        columns=fields,
        rows=for_each_trace(rows),
        levels=("layer",),
        largest="latency_us" if "latency_us" in fields else fields[-1],
    )


def _shares_by_type(value: Callable[[LayerRow], float]) -> Callable[[TraceContext], Iterable[Row]]:
    """Return a function of a trace: the sum of a value and its share for each type of layer.

    The largest sum comes first.
    """

    def rows(trace: TraceContext) -> Iterable[Row]:
        sums = sums_by_key((layer.type, value(layer)) for layer in trace.layers)
        total = sum(sums.values())
        for layer_type in sorted(sums, key=lambda name: -sums[name]):
            amount = sums[layer_type]
            yield layer_type, amount, share_of(amount, total)

    return rows


def _metrics(trace: TraceContext) -> Iterable[Row]:
    copied = _copied_bytes(trace)
    for layer, work in zip(trace.layers, trace.works, strict=True):
        flops = None
        moved = None
        if work is not None:
            flops = work.flops
            moved = work.bytes
        copied_bytes = copied.get(layer.name)
        yield layer.index, layer.name, layer.kernel_us, flops, moved, copied_bytes


def _copied_bytes(trace: TraceContext) -> Mapping[str, float]:
    """Return the bytes that the copies of each layer move in a request."""
    copies = []
    for kernel in trace.kernels:
        size = kernel.bytes or 0
        copies.append((kernel.layer, round(size * kernel.calls)))
    return sums_by_key(copies)


def _gpu_and_cpu(trace: TraceContext) -> Iterable[Row]:
    for layer in trace.layers:
        other_us = None
        if layer.kernel_us is not None:
            other_us = max(0.0, layer.latency_us - layer.kernel_us)
        yield layer.index, layer.name, layer.latency_us, layer.kernel_us, other_us


LAYERS = _of_each_layer(
    "layers",
    "A2",
    "each layer",
    "index",
    "name",
    "type",
    "shape",
    "latency_us",
    "share",
    "bytes",
)

LAYER_LATENCY = _of_each_layer(
    "layer-latency",
    "A3",
    "latency of each layer",
    "index",
    "name",
    "latency_us",
)

LAYER_MEMORY = _of_each_layer(
    "layer-memory",
    "A4",
    "memory of each layer",
    "index",
    "name",
    "bytes",
)

TYPES = Analysis(
    name="types",
    number="A5",
    description="how many layers of each type",
    columns=("type", "layers", "share"),
    rows=for_each_trace(_shares_by_type(lambda layer: 1)),
    levels=("layer",),
)

LATENCY_BY_TYPE = Analysis(
    name="latency-by-type",
    number="A6",
    description="latency of the layers of each type",
    columns=("type", "latency_us", "share"),
    rows=for_each_trace(_shares_by_type(lambda layer: layer.latency_us)),
    levels=("layer",),
)

MEMORY_BY_TYPE = Analysis(
    name="memory-by-type",
    number="A7",
    description="memory of the layers of each type",
    columns=("type", "bytes", "share"),
    rows=for_each_trace(_shares_by_type(lambda layer: layer.bytes or 0)),
    levels=("layer",),
)

METRICS_BY_LAYER = Analysis(
    name="metrics-by-layer",
    number="A12",
    description="operations and bytes of each layer beside its kernels' time",
    columns=("index", "layer", "kernel_us", "flops", "bytes", "copied_bytes"),
    rows=for_each_trace(_metrics),
    levels=("layer", "kernel"),
    largest="flops",
)

GPU_AND_CPU = Analysis(
    name="gpu-and-cpu",
    number="A13",
    description="each layer's time on the GPU and elsewhere",
    columns=("index", "layer", "latency_us", "gpu_us", "other_us"),
    rows=for_each_trace(_gpu_and_cpu),
    levels=("layer", "kernel"),
    largest="latency_us",
)

ANALYSES = [
    LAYERS,
    LAYER_LATENCY,
    LAYER_MEMORY,
    TYPES,
    LATENCY_BY_TYPE,
    MEMORY_BY_TYPE,
    METRICS_BY_LAYER,
    GPU_AND_CPU,
]
