"""Analyses A8, A10 and A11: kernels, and kernels by name and by layer."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pytest_mlms.trace.analyses.analysis import Analysis, Row, for_each_trace
from pytest_mlms.trace.context import TraceContext
from pytest_mlms.trace.tables import KernelRow

__all__ = ["ANALYSES"]

_FIELDS = ("name", "type", "layer", "calls", "latency_us", "total_us", "bytes")


def _each_kernel(trace: TraceContext) -> Iterable[Row]:
    for kernel in trace.kernels:
        yield tuple(getattr(kernel, field) for field in _FIELDS)


def _grouped(
    number: str, description: str, column: str, key: Callable[[KernelRow], str]
) -> Analysis:
    """Return an analysis of the kernels with the same key together, the longest first."""

    def rows(trace: TraceContext) -> Iterable[Row]:
        calls: dict[str, float] = {}
        total_us: dict[str, float] = {}
        for kernel in trace.kernels:
            name = key(kernel)
            calls[name] = calls.get(name, 0) + kernel.calls
            total_us[name] = total_us.get(name, 0) + kernel.total_us
        all_us = sum(total_us.values())
        for name in sorted(total_us, key=lambda name: -total_us[name]):
            share = None
            if all_us:
                share = total_us[name] / all_us
            yield name, calls[name], total_us[name], share

    columns = (column, "calls", "total_us", "share")
    return Analysis(number, description, columns, for_each_trace(rows))


ANALYSES = {
    "kernels": Analysis(
        number="A8",
        description="each kernel of each layer",
        columns=("kernel", *_FIELDS[1:]),
        rows=for_each_trace(_each_kernel),
    ),
    "kernels-by-name": _grouped(
        "A10", "kernels of each name together", "kernel", lambda kernel: kernel.name
    ),
    "kernels-by-layer": _grouped(
        "A11", "kernels of each layer together", "layer", lambda kernel: kernel.layer
    ),
}
