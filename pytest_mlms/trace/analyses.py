"""The analyses A1 to A15 of XSP (Li and others, IPDPS 2020, https://arxiv.org/abs/1908.06869) as
tables, and the counters, which XSP has in no table of their own.

Pure functions of traces. Where there is no GPU, those of kernels are empty, and the rooflines are
the CPU's.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple, dataclass

from pytest_mlms.trace.context import Row, Table, TraceContext
from pytest_mlms.trace.counters import counter_rows, phase_rows
from pytest_mlms.trace.roofline import Work
from pytest_mlms.trace.steps import step_rows
from pytest_mlms.trace.tables import KernelRow, LayerRow

__all__ = ["KINDS", "Analysis", "optimal_batch"]

_GAIN = 0.05  # a doubling of the batch that adds less to the throughput isn't worth it


def optimal_batch(throughputs: Sequence[tuple[int, float]]) -> int:
    """Return the batch size of the last doubling, from the smallest on, that gains more than 5 %."""
    ordered = sorted(throughputs)
    best = ordered[0][0]
    for (_, before), (size, after) in itertools.pairwise(ordered):
        if after <= before * (1 + _GAIN):
            break
        best = size
    return best


def _model(subjects: Sequence[TraceContext]) -> Iterable[Row]:
    """A1: latency and throughput over batch sizes, and the optimal one."""
    groups: dict[Row, dict[int, float]] = {}
    for subject in subjects:
        if subject.latency_us:
            groups.setdefault(subject.series, {})[subject.about["batch_size"]] = subject.latency_us
    for series, latencies in groups.items():
        throughputs = {size: size / us * 1e6 for size, us in latencies.items()}
        best = optimal_batch(list(throughputs.items()))
        for size in sorted(latencies):
            yield *series, size, latencies[size], throughputs[size], size == best


def _each_layer(*fields: str) -> Callable[[Sequence[TraceContext]], Iterable[Row]]:
    def rows(subjects: Sequence[TraceContext]) -> Iterable[Row]:
        for subject in subjects:
            for layer in subject.layers:
                yield *subject.name, *(getattr(layer, field) for field in fields)

    return rows


def _by_type(
    value: Callable[[LayerRow], float],
) -> Callable[[Sequence[TraceContext]], Iterable[Row]]:
    """Sum a value of the layers of each type, the largest first, with its share."""

    def rows(subjects: Sequence[TraceContext]) -> Iterable[Row]:
        for subject in subjects:
            sums: dict[str, float] = {}
            for layer in subject.layers:
                sums[layer.type] = sums.get(layer.type, 0) + value(layer)
            total = sum(sums.values())
            for kind, amount in sorted(sums.items(), key=lambda pair: -pair[1]):
                yield *subject.name, kind, amount, amount / total if total else None

    return rows


def _kernels(subjects: Sequence[TraceContext]) -> Iterable[Row]:
    """A8: each kernel of each layer."""
    for subject in subjects:
        for row in subject.kernels:
            yield (
                *subject.name,
                row.name,
                row.type,
                row.layer,
                row.calls,
                row.latency_us,
                row.total_us,
                row.bytes,
            )


def _kernel_roofline(subjects: Sequence[TraceContext]) -> Iterable[Row]:
    """A9: the longest kernel of each layer, taken to do the layer's operations."""
    for subject in subjects:
        works = {
            layer.name: work for layer, work in zip(subject.layers, subject.works, strict=True)
        }
        seen = set()
        for row in subject.kernels:  # the longest first
            if row.layer and row.layer not in seen and row.type == "kernel":
                seen.add(row.layer)
                yield (
                    *subject.name,
                    row.name,
                    row.layer,
                    *_dot(subject, works.get(row.layer), row.total_us),
                )


def _grouped_kernels(
    key: Callable[[KernelRow], str],
) -> Callable[[Sequence[TraceContext]], Iterable[Row]]:
    """Sum calls and time of kernels by a key, the longest first, with the share of all kernels."""

    def rows(subjects: Sequence[TraceContext]) -> Iterable[Row]:
        for subject in subjects:
            sums: dict[str, tuple[float, float]] = {}
            for row in subject.kernels:
                calls, us = sums.get(key(row), (0.0, 0.0))
                sums[key(row)] = (calls + row.calls, us + row.total_us)
            total = sum(us for _, us in sums.values())
            for name, (calls, us) in sorted(sums.items(), key=lambda pair: -pair[1][1]):
                yield *subject.name, name, calls, us, us / total if total else None

    return rows


def _metrics(subjects: Sequence[TraceContext]) -> Iterable[Row]:
    """A12: operations, bytes and copies of each layer beside the time of its kernels."""
    for subject in subjects:
        copied: dict[str, int] = {}
        for row in subject.kernels:
            copied[row.layer] = copied.get(row.layer, 0) + round((row.bytes or 0) * row.calls)
        for layer, work in zip(subject.layers, subject.works, strict=True):
            counts = (work.flops, work.bytes) if work else (None, None)
            yield (
                *subject.name,
                layer.index,
                layer.name,
                layer.kernel_us,
                *counts,
                copied.get(layer.name),
            )


def _devices(subjects: Sequence[TraceContext]) -> Iterable[Row]:
    """A13: of each layer's time, what its kernels ran on the device, and the rest."""
    for subject in subjects:
        for layer in subject.layers:
            rest = None if layer.kernel_us is None else max(0.0, layer.latency_us - layer.kernel_us)
            yield *subject.name, layer.index, layer.name, layer.latency_us, layer.kernel_us, rest


def _dot(subject: TraceContext, work: Work | None, us: float | None) -> Row:
    found = subject.point(work, us)
    if found is None:
        return (work.flops if work else None, work.bytes if work else None, *[None] * 5)
    assert work is not None
    rates = (
        found.intensity,
        found.gflops_per_s,
        found.attainable_gflops_per_s,
        found.efficiency,
        found.bound,
    )
    return (work.flops, work.bytes, *rates)


def _layer_roofline(subjects: Sequence[TraceContext]) -> Iterable[Row]:
    """A14: each layer under the roof; by its kernels' time where they were seen."""
    for subject in subjects:
        for layer, work in zip(subject.layers, subject.works, strict=True):
            yield (
                *subject.name,
                layer.index,
                layer.name,
                layer.type,
                *_dot(subject, work, layer.kernel_us or layer.latency_us),
            )


def _whole(subjects: Sequence[TraceContext]) -> Iterable[Row]:
    """A15: each model as a whole: its kernels together, and its place under the roof."""
    for subject in subjects:
        kernels = math.fsum(row.total_us for row in subject.kernels) if subject.kernels else None
        calls = sum(row.calls for row in subject.kernels) if subject.kernels else None
        yield (
            *subject.name,
            subject.latency_us,
            calls,
            kernels,
            *_dot(subject, subject.total, subject.latency_us),
        )


def _steps(subjects: Sequence[TraceContext]) -> Iterable[Row]:
    """What a request does on the pytest side, around and in the call of the agent."""
    for subject in subjects:
        for row in step_rows(subject.trace):
            yield *subject.name, *astuple(row)


def _counters_by_layer(subjects: Sequence[TraceContext]) -> Iterable[Row]:
    """What each layer counted, where layers ran one by one, with its share of what all of them
    counted.
    """
    for subject in subjects:
        rows = counter_rows(subject.trace, subject.parents)
        totals: dict[str, float] = {}
        for row in rows:
            totals[row.counter] = totals.get(row.counter, 0) + row.per_call
        for row in rows:
            total = totals[row.counter]
            yield *subject.name, *astuple(row), row.per_call / total if total else None


def _counters(subjects: Sequence[TraceContext]) -> Iterable[Row]:
    """What each phase counted, and the states that were read meanwhile."""
    for subject in subjects:
        for row in phase_rows(subject.trace):
            yield *subject.name, *astuple(row)


@dataclass(frozen=True)
class Analysis:
    """An analysis: its number in XSP (ours have none), the columns behind model and case, and how
    rows are made.
    """

    number: str
    about: str
    columns: tuple[str, ...]
    rows: Callable[[Sequence[TraceContext]], Iterable[Row]]
    heads: tuple[str, ...] = ("model", "case")

    def table(self, subjects: Sequence[TraceContext]) -> Table:
        """Return the table over all subjects."""
        return Table((*self.heads, *self.columns), tuple(self.rows(subjects)))


_ROOF = (
    "flops",
    "bytes",
    "flops_per_byte",
    "gflops_per_s",
    "roof_gflops_per_s",
    "of_roof",
    "bound",
)
_LAYER = ("index", "name", "type", "shape", "latency_us", "share", "bytes")

KINDS: dict[str, Analysis] = {
    "model": Analysis(
        "A1",
        "latency and throughput over batch sizes, and the optimal one",
        ("batch_size", "latency_us", "inputs_per_s", "optimal"),
        _model,
        ("model", "framework", "device"),
    ),
    "layers": Analysis("A2", "each layer", _LAYER, _each_layer(*_LAYER)),
    "layer-latency": Analysis(
        "A3",
        "latency of each layer",
        ("index", "name", "latency_us"),
        _each_layer("index", "name", "latency_us"),
    ),
    "layer-memory": Analysis(
        "A4",
        "memory of each layer",
        ("index", "name", "bytes"),
        _each_layer("index", "name", "bytes"),
    ),
    "types": Analysis(
        "A5", "how many layers of each type", ("type", "layers", "share"), _by_type(lambda layer: 1)
    ),
    "latency-by-type": Analysis(
        "A6",
        "latency of the layers of each type",
        ("type", "latency_us", "share"),
        _by_type(lambda x: x.latency_us),
    ),
    "memory-by-type": Analysis(
        "A7",
        "memory of the layers of each type",
        ("type", "bytes", "share"),
        _by_type(lambda x: x.bytes or 0),
    ),
    "kernels": Analysis(
        "A8",
        "each kernel of each layer",
        ("kernel", "type", "layer", "calls", "latency_us", "total_us", "bytes"),
        _kernels,
    ),
    "kernel-roofline": Analysis(
        "A9",
        "the longest kernel of each layer under the roof",
        ("kernel", "layer", *_ROOF),
        _kernel_roofline,
    ),
    "kernels-by-name": Analysis(
        "A10",
        "kernels of each name together",
        ("kernel", "calls", "total_us", "share"),
        _grouped_kernels(lambda x: x.name),
    ),
    "kernels-by-layer": Analysis(
        "A11",
        "kernels of each layer together",
        ("layer", "calls", "total_us", "share"),
        _grouped_kernels(lambda x: x.layer),
    ),
    "metrics-by-layer": Analysis(
        "A12",
        "operations and bytes of each layer beside its kernels' time",
        ("index", "layer", "kernel_us", "flops", "bytes", "copied_bytes"),
        _metrics,
    ),
    "gpu-and-cpu": Analysis(
        "A13",
        "each layer's time on the GPU and elsewhere",
        ("index", "layer", "latency_us", "gpu_us", "other_us"),
        _devices,
    ),
    "layer-roofline": Analysis(
        "A14", "each layer under the roof", ("index", "layer", "type", *_ROOF), _layer_roofline
    ),
    "model-roofline": Analysis(
        "A15",
        "each model's kernels together, and the model under the roof",
        ("latency_us", "kernels", "kernel_us", *_ROOF),
        _whole,
    ),
    "steps": Analysis(
        "",
        "each phase of a request with its steps: pre-process, predict, post-process",
        ("step", "within", "calls", "latency_us", "share"),
        _steps,
    ),
    "counters": Analysis(
        "",
        "what a call adds to each counter, by phase; the readings of those that don't only go up",
        ("phase", "counter", "unit", "per_call", "least", "mean", "most", "readings"),
        _counters,
    ),
    "counters-by-layer": Analysis(
        "",
        "what a call adds to each counter, by layer",
        ("index", "layer", "type", "counter", "unit", "per_call", "calls", "share"),
        _counters_by_layer,
    ),
}
"""By name."""
