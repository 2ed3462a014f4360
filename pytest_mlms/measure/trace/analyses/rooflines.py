"""Analyses A9, A14 and A15: rooflines of kernels, layers and models.

Without a GPU the roofline is the CPU's.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from pytest_mlms.measure.trace.analyses.analysis import Analysis, Row, for_each_trace
from pytest_mlms.measure.trace.context import TraceContext
from pytest_mlms.measure.trace.roofline import Work, has_roof

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


def _layers(trace: TraceContext) -> Iterable[Row]:
    """Yield each layer, by the time of its kernels where they were observed."""
    for layer, work in zip(trace.layers, trace.works, strict=True):
        us = layer.kernel_us or layer.latency_us
        names = layer.index, layer.name, layer.type
        yield names + _roofline_cells(trace, work, us, has_roof(layer.type))


def _models(trace: TraceContext) -> Iterable[Row]:
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
    rows=for_each_trace(_layers),
    levels=("layer",),
    largest="flops",
)

MODEL_ROOFLINE = Analysis(
    name="model-roofline",
    number="A15",
    description="each model's kernels together, and the model under the roof",
    columns=("latency_us", "kernels", "kernel_us", *_ROOFLINE),
    rows=for_each_trace(_models),
)

ANALYSES = [KERNEL_ROOFLINE, LAYER_ROOFLINE, MODEL_ROOFLINE]
