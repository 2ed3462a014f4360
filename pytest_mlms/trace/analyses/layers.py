"""Analyses A2 to A7, A12 and A13: layers, layers by type, and layers beside their kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from pytest_mlms.trace.analyses.analysis import Analysis, Row, for_each_trace
from pytest_mlms.trace.context import TraceContext
from pytest_mlms.trace.tables import LayerRow

__all__ = ["ANALYSES"]


def _of_each_layer(number: str, description: str, fields: tuple[str, ...]) -> Analysis:
    """Return an analysis with fields of ``LayerRow`` as its columns."""

    def rows(trace: TraceContext) -> Iterable[Row]:
        for layer in trace.layers:
            yield tuple(getattr(layer, field) for field in fields)

    return Analysis(number, description, fields, for_each_trace(rows))


def _by_type(
    number: str, description: str, column: str, value: Callable[[LayerRow], float]
) -> Analysis:
    """Return an analysis of the sum of a value of the layers of each type, the largest first."""

    def rows(trace: TraceContext) -> Iterable[Row]:
        sums: dict[str, float] = {}
        for layer in trace.layers:
            sums[layer.type] = sums.get(layer.type, 0) + value(layer)
        total = sum(sums.values())
        for layer_type in sorted(sums, key=lambda name: -sums[name]):
            amount = sums[layer_type]
            yield layer_type, amount, _share(amount, total)

    return Analysis(number, description, ("type", column, "share"), for_each_trace(rows))


def _share(amount: float, total: float) -> float | None:
    if not total:
        return None
    return amount / total


def _one(layer: LayerRow) -> float:
    return 1


def _latency(layer: LayerRow) -> float:
    return layer.latency_us


def _bytes(layer: LayerRow) -> float:
    return layer.bytes or 0


def _metrics(trace: TraceContext) -> Iterable[Row]:
    copied = _copied_bytes(trace)
    for layer, work in zip(trace.layers, trace.works, strict=True):
        counts: tuple[Any, Any] = (None, None)
        if work is not None:
            counts = (work.flops, work.bytes)
        yield (layer.index, layer.name, layer.kernel_us, *counts, copied.get(layer.name))


def _copied_bytes(trace: TraceContext) -> dict[str, int]:
    """Return the bytes that the copies of each layer move in a request."""
    copied: dict[str, int] = {}
    for kernel in trace.kernels:
        of_request = round((kernel.bytes or 0) * kernel.calls)
        copied[kernel.layer] = copied.get(kernel.layer, 0) + of_request
    return copied


def _gpu_and_cpu(trace: TraceContext) -> Iterable[Row]:
    for layer in trace.layers:
        other_us = None
        if layer.kernel_us is not None:
            other_us = max(0.0, layer.latency_us - layer.kernel_us)
        yield layer.index, layer.name, layer.latency_us, layer.kernel_us, other_us


_ALL_FIELDS = ("index", "name", "type", "shape", "latency_us", "share", "bytes")

ANALYSES = {
    "layers": _of_each_layer("A2", "each layer", _ALL_FIELDS),
    "layer-latency": _of_each_layer("A3", "latency of each layer", ("index", "name", "latency_us")),
    "layer-memory": _of_each_layer("A4", "memory of each layer", ("index", "name", "bytes")),
    "types": _by_type("A5", "how many layers of each type", "layers", _one),
    "latency-by-type": _by_type("A6", "latency of the layers of each type", "latency_us", _latency),
    "memory-by-type": _by_type("A7", "memory of the layers of each type", "bytes", _bytes),
    "metrics-by-layer": Analysis(
        number="A12",
        description="operations and bytes of each layer beside its kernels' time",
        columns=("index", "layer", "kernel_us", "flops", "bytes", "copied_bytes"),
        rows=for_each_trace(_metrics),
    ),
    "gpu-and-cpu": Analysis(
        number="A13",
        description="each layer's time on the GPU and elsewhere",
        columns=("index", "layer", "latency_us", "gpu_us", "other_us"),
        rows=for_each_trace(_gpu_and_cpu),
    ),
}
