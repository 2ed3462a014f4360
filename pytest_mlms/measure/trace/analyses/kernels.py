"""Analyses A8, A10 and A11: kernels, and kernels by name and by layer."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pytest_mlms.measure.trace.analyses.analysis import (
    Analysis,
    Row,
    for_each_trace,
    share_of,
    sums_by_key,
)
from pytest_mlms.measure.trace.context import TraceContext
from pytest_mlms.measure.trace.tables import KernelRow


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

ANALYSES = [KERNELS, KERNELS_BY_NAME, KERNELS_BY_LAYER]
