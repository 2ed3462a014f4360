"""The analyses A1 to A15 of XSP: models, layers, kernels and rooflines.

Without a GPU the roofline is that of the CPU.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from pytest_mlms.measure.trace.analyses.analysis import (
    Analysis,
    Row,
    for_each_trace,
    share_of,
    sums_by_key,
)
from pytest_mlms.measure.trace.roofline import Work, has_roof
from pytest_mlms.measure.trace.summary import TraceContext
from pytest_mlms.measure.trace.tables import KernelRow, LayerRow

_LEAST_GAIN = 0.05  # of a doubling of the batch size that is worth it


def optimal_batch_size(throughputs: Mapping[int, float]) -> int:
    """Return the batch size of the last doubling that gains more than 5 %, from the smallest on."""
    sizes = sorted(throughputs)
    best = sizes[0]
    for smaller, larger in itertools.pairwise(sizes):
        least = throughputs[smaller] * (1 + _LEAST_GAIN)
        if throughputs[larger] <= least:
            break
        best = larger
    return best


def _models(traces: Sequence[TraceContext]) -> Iterable[Row]:
    latencies: dict[Row, dict[int, float]] = {}
    for trace in traces:
        if trace.latency_us:
            of_series = latencies.setdefault(trace.series, {})
            of_series[trace.metadata.batch_size] = trace.latency_us
    for series, of_series in latencies.items():
        for row in _batch_sizes(of_series):
            yield series + row


def _batch_sizes(latencies_us: Mapping[int, float]) -> Iterable[Row]:
    """Yield batch size, latency, throughput, and whether the size is the optimal one."""
    throughputs = {}
    for size, us in latencies_us.items():
        throughputs[size] = size / us * 1e6
    best = optimal_batch_size(throughputs)
    for size in sorted(latencies_us):
        is_optimal = size == best
        yield size, latencies_us[size], throughputs[size], is_optimal


MODEL = Analysis(
    name="model",
    number="A1",
    description="latency and throughput over batch sizes, and the optimal one",
    columns=("batch_size", "latency_us", "inputs_per_s", "optimal"),
    rows=_models,
    first_columns=("model", "case", "framework", "device"),
)


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


def _each_kernel(trace: TraceContext) -> Iterable[Row]:
    for kernel in trace.kernels:
        yield (
            kernel.name,
            kernel.type,
            kernel.layer,
            kernel.calls,
            kernel.latency_us,
            kernel.total_us,
            kernel.bytes,
        )


def _grouped(key: Callable[[KernelRow], str]) -> Callable[[TraceContext], Iterable[Row]]:
    """Return a function of a trace: the kernels with the same key together, the longest first."""

    def rows(trace: TraceContext) -> Iterable[Row]:
        calls = sums_by_key((key(kernel), kernel.calls) for kernel in trace.kernels)
        total_us = sums_by_key((key(kernel), kernel.total_us) for kernel in trace.kernels)
        all_us = sum(total_us.values())
        for name in sorted(total_us, key=lambda name: -total_us[name]):
            share = share_of(total_us[name], all_us)
            yield name, calls[name], total_us[name], share

    return rows


KERNELS = Analysis(
    name="kernels",
    number="A8",
    description="each kernel of each layer",
    columns=("kernel", "type", "layer", "calls", "latency_us", "total_us", "bytes"),
    rows=for_each_trace(_each_kernel),
    levels=("kernel",),
    largest="total_us",
)

KERNELS_BY_NAME = Analysis(
    name="kernels-by-name",
    number="A10",
    description="kernels of each name together",
    columns=("kernel", "calls", "total_us", "share"),
    rows=for_each_trace(_grouped(lambda kernel: kernel.name)),
    levels=("kernel",),
    largest="total_us",
)

KERNELS_BY_LAYER = Analysis(
    name="kernels-by-layer",
    number="A11",
    description="kernels of each layer together",
    columns=("layer", "calls", "total_us", "share"),
    rows=for_each_trace(_grouped(lambda kernel: kernel.layer)),
    levels=("kernel",),
    largest="total_us",
)


_WORK = ("flops", "bytes")
_POINT = ("flops_per_byte", "gflops_per_s", "roof_gflops_per_s", "of_roof", "bound")
_ROOFLINE = _WORK + _POINT

_UNKNOWN_WORK = (None,) * len(_WORK)
_UNKNOWN_POINT = (None,) * len(_POINT)


def _longest_kernels(trace: TraceContext) -> Iterable[Row]:
    """Yield the longest kernel of each layer, taken to do all operations of the layer."""
    works = {}
    types = {}
    for layer, work in zip(trace.layers, trace.works, strict=True):
        works[layer.name] = work
        types[layer.name] = layer.type
    seen = set()
    for kernel in trace.kernels:  # the longest first
        if not kernel.layer or kernel.layer in seen or kernel.type != "kernel":
            continue
        seen.add(kernel.layer)
        work = works.get(kernel.layer)
        is_float = has_roof(types.get(kernel.layer, ""))
        names = kernel.name, kernel.layer
        yield names + _roofline_cells(trace, work, kernel.total_us, is_float)


def _layer_rooflines(trace: TraceContext) -> Iterable[Row]:
    """Yield each layer, by the time of its kernels where they were observed."""
    for layer, work in zip(trace.layers, trace.works, strict=True):
        us = layer.kernel_us or layer.latency_us
        names = layer.index, layer.name, layer.type
        yield names + _roofline_cells(trace, work, us, has_roof(layer.type))


def _model_rooflines(trace: TraceContext) -> Iterable[Row]:
    calls = None
    kernel_us = None
    if trace.kernels:
        calls = sum(kernel.calls for kernel in trace.kernels)
        kernel_us = math.fsum(kernel.total_us for kernel in trace.kernels)
    times = trace.latency_us, calls, kernel_us
    is_float = not trace.is_quantized
    yield times + _roofline_cells(trace, trace.total_work, trace.latency_us, is_float)


def _roofline_cells(
    trace: TraceContext, work: Work | None, us: float | None, is_float: bool
) -> Row:
    """Return the cells of the columns of ``_ROOFLINE`` for work that takes ``us`` microseconds.

    Work that is not in float32 has no point, since the peaks are of float32.
    """
    if work is None:
        return _UNKNOWN_WORK + _UNKNOWN_POINT
    counts = work.flops, work.bytes
    point = trace.roofline_point(work, us) if is_float else None
    if point is None:
        return counts + _UNKNOWN_POINT
    return (
        *counts,
        point.intensity,
        point.gflops_per_s,
        point.attainable_gflops_per_s,
        point.efficiency,
        point.bound,
    )


KERNEL_ROOFLINE = Analysis(
    name="kernel-roofline",
    number="A9",
    description="the longest kernel of each layer under the roof",
    columns=("kernel", "layer", *_ROOFLINE),
    rows=for_each_trace(_longest_kernels),
    levels=("layer", "kernel"),
)

LAYER_ROOFLINE = Analysis(
    name="layer-roofline",
    number="A14",
    description="each layer under the roof",
    columns=("index", "layer", "type", *_ROOFLINE),
    rows=for_each_trace(_layer_rooflines),
    levels=("layer",),
    largest="flops",
)

MODEL_ROOFLINE = Analysis(
    name="model-roofline",
    number="A15",
    description="each model's kernels together, and the model under the roof",
    columns=("latency_us", "kernels", "kernel_us", *_ROOFLINE),
    rows=for_each_trace(_model_rooflines),
)


ANALYSES = [
    MODEL,
    LAYERS,
    LAYER_LATENCY,
    LAYER_MEMORY,
    TYPES,
    LATENCY_BY_TYPE,
    MEMORY_BY_TYPE,
    METRICS_BY_LAYER,
    GPU_AND_CPU,
    KERNELS,
    KERNELS_BY_NAME,
    KERNELS_BY_LAYER,
    KERNEL_ROOFLINE,
    LAYER_ROOFLINE,
    MODEL_ROOFLINE,
]
