"""Summary of a trace: its latencies, the time in which a GPU works, its layers; and its tables."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from pytest_mlms.core.arrays import Array
from pytest_mlms.measure.structure.cost import LayerCost, ModelCost
from pytest_mlms.measure.trace.correlate import Parents, parents_of, sums_by, trimmed_mean
from pytest_mlms.measure.trace.records import (
    CostSummary,
    DeviceTime,
    SlowLayer,
    TraceRun,
    TraceSummary,
    TypeCost,
)
from pytest_mlms.measure.trace.roofline import (
    RooflinePoint,
    Work,
    has_roof,
    match_work,
    roofline_point,
    total_work,
)
from pytest_mlms.measure.trace.spans import Spans, Trace
from pytest_mlms.measure.trace.tables import (
    KernelRow,
    LayerRow,
    kernel_rows,
    layer_rows,
    layers_of_run,
)

__all__ = ["SlowLayer", "TraceSummary", "summarize"]


_MOST_TYPES = 30  # of layers in a summary of a model's cost


class LayerTime(NamedTuple):
    """Microseconds of a call in the run of the layers, and of its layers together.

    Both are means over the same calls: all but the longest and the shortest fifth.
    """

    layers_us: float
    call_us: float

    @property
    def share(self) -> float:
        """Share of the call that its layers take."""
        return self.layers_us / self.call_us


def model_latency(trace: Trace, level: str = "model") -> float | None:
    """Return the microseconds of one call in the run of ``level``.

    None without that run, or without a call in it.
    """
    run = trace.run_at(level)
    spans = trace.spans
    calls = spans.find("model", run)
    in_request = spans.request[calls] >= 0
    calls = calls[in_request]
    if not len(calls):
        return None
    return trimmed_mean(spans.duration[calls]) / 1000


def layer_time(trace: Trace) -> LayerTime | None:
    """Return the time of a call in the run of the layers; None without layers in calls."""
    run = trace.run_at("layer")
    layers = layers_of_run(trace, run)
    if not len(layers.spans):
        return None
    calls = trace.spans.find("model", run)
    typical = calls[np.isin(trace.spans.request[calls], layers.typical)]
    if not len(typical):
        return None
    call_us = float(trace.spans.duration[typical].mean()) / 1000
    layers_us = math.fsum(layers.microseconds(trace.spans.duration).values())
    return LayerTime(layers_us, call_us)


def device_time(trace: Trace) -> DeviceTime | None:
    """Return the time of a GPU in a call; None without a kernel or a copy in one."""
    spans = trace.spans
    run = trace.run_at("kernel")
    found = spans.find("kernel", run)
    found = found[spans.request[found] >= 0]
    if not len(found):
        return None
    calls = spans.find("model", run)
    requests = np.unique(spans.request[calls[spans.request[calls] >= 0]])
    is_kernel = np.char.endswith(trace.texts(spans.type[found]), "kernel")
    names = np.array(trace.texts(spans.name[found]))
    return DeviceTime(
        busy_us=_busy_us(spans, found, requests),
        kernels_us=_busy_us(spans, found[is_kernel], requests),
        to_device_us=_busy_us(spans, found[~is_kernel & _has(names, "HtoD")], requests),
        to_host_us=_busy_us(spans, found[~is_kernel & _has(names, "DtoH")], requests),
        launches=len(found) / len(requests),
    )


def _has(names: Array, direction: str) -> Array:
    return np.asarray(np.char.find(names, direction) >= 0)


def _busy_us(spans: Spans, chosen: Array, requests: Array) -> float:
    """Return the mean over requests of the time in which any of the chosen spans runs.

    A span counts from where all that began before it have ended; calls come one after another.
    """
    chosen = chosen[np.argsort(spans.start[chosen], kind="stable")]
    start, end = spans.start[chosen], spans.end[chosen]
    ended = np.maximum.accumulate(np.concatenate([start[:1], end]))[:-1]
    alone = np.maximum(end - np.maximum(start, ended), 0)
    sums = sums_by(spans.request[chosen], alone, int(requests.max()) + 1)
    return trimmed_mean(sums[requests]) / 1000


_SLOWEST = 5


def summarize(trace: Trace) -> TraceSummary:
    """Return the summary of a trace."""
    parents = parents_of(trace)
    layers = layer_rows(trace, parents)
    time = layer_time(trace)
    unseen = dict(_unseen(trace))
    faults = {}
    for level, fault in _faults(trace.runs):
        if level not in unseen:
            faults[level] = fault
    return TraceSummary(
        levels=trace.metadata.levels,
        runs=trace.runs,
        coverage=time.share if time else None,
        layers=len(layers),
        slowest=_slowest(layers),
        ambiguous=int(parents.ambiguous.sum()),
        unseen=unseen,
        faults=faults,
        layers_us=time.layers_us if time else None,
        call_us=time.call_us if time else None,
        layers_sha256=_digest(layers),
        cost=trace.metadata.cost,
        gpu=device_time(trace),
    )


def _digest(layers: Sequence[LayerRow]) -> str | None:
    if not layers:
        return None
    names = [(row.name, row.type) for row in layers]
    return hashlib.sha256(json.dumps(names).encode()).hexdigest()


def _slowest(layers: Sequence[LayerRow]) -> tuple[SlowLayer, ...]:
    ordered = sorted(layers, key=lambda row: row.latency_us, reverse=True)
    slowest = []
    for row in ordered[:_SLOWEST]:
        layer = SlowLayer(row.name, row.type, row.latency_us, row.share)
        slowest.append(layer)
    return tuple(slowest)


def _unseen(trace: Trace) -> Iterator[tuple[str, str]]:
    """Yield each level that was asked for and has neither spans nor counters, with the reason."""
    for level in trace.metadata.levels:
        if level in ("application", "model"):
            continue
        run = trace.run_at(level)
        spans = trace.spans.find(level, run)
        counted_runs = {series.run for series in trace.series}
        if not len(spans) and run not in counted_runs:
            yield level, _reason(trace.runs_at(level))


def _reason(runs: Sequence[TraceRun]) -> str:
    reasons = [run.fault for run in runs if run.fault]
    probes: dict[str, list[str]] = {}
    for run in runs:
        for status in sorted(run.probes, key=lambda status: not status.fault):
            if status.reason or status.fault:
                probes.setdefault(status.reason or status.fault, []).append(status.probe)
    for reason, names in probes.items():
        listed = ", ".join(names)
        reasons.append(f"{listed}: {reason}")
    return "; ".join(reasons) or "nothing was recorded"


def _faults(runs: Sequence[TraceRun]) -> Iterator[tuple[str, str]]:
    """Yield the level of each run that counts and had a fault, with its faults."""
    for run in runs:
        faults = [run.fault, *(status.fault for status in run.probes)]
        known = [fault for fault in faults if fault]
        if known and not run.void:
            yield run.level, "; ".join(known)


class TraceContext:
    """A trace, and the values that its analyses share."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.metadata = trace.metadata

    @property
    def name(self) -> tuple[str, str]:
        """The model and the case, with which rows begin."""
        return self.metadata.manifest, self.metadata.case

    @property
    def series(self) -> tuple[str, str, str, str]:
        """The name of a model's traces on one stack at all batch sizes."""
        metadata = self.metadata
        case = re.sub(rf"^(.*)-b{metadata.batch_size}(?![^-])", r"\1", metadata.case)
        return metadata.manifest, case, metadata.framework, metadata.device

    @cached_property
    def parents(self) -> Parents:
        """The parent of each span."""
        return parents_of(self.trace)

    @cached_property
    def layers(self) -> list[LayerRow]:
        """The layers, in the order in which they run."""
        return layer_rows(self.trace, self.parents)

    @cached_property
    def kernels(self) -> list[KernelRow]:
        """The kernels, the longest first."""
        return kernel_rows(self.trace, self.parents)

    @cached_property
    def latency_us(self) -> float | None:
        """Microseconds of a call without any probe; None without such a call."""
        return model_latency(self.trace)

    @cached_property
    def layer_time(self) -> LayerTime | None:
        """The time of the layers and of the calls around them; None without layers in calls."""
        return layer_time(self.trace)

    @cached_property
    def works(self) -> list[Work | None]:
        """The static work of each of ``layers``; None where it is unknown."""
        return match_work(self.layers, self.metadata.static)

    @property
    def total_work(self) -> Work | None:
        """The static work of the whole model; None where it is unknown."""
        return total_work(self.metadata.static)

    @property
    def is_quantized(self) -> bool:
        """True if a layer of the model is not limited by the peak of float32."""
        types = {layer.type for layer in self.layers}
        types |= {layer.type for layer in self.metadata.static}
        return not all(map(has_roof, types))

    def roofline_point(self, work: Work | None, us: float | None) -> RooflinePoint | None:
        """Return the point of work in float32 that takes ``us`` microseconds.

        None where the work, the time or the peaks of the device are unknown.
        """
        peaks = self.metadata.peaks
        if work is None or us is None or peaks is None:
            return None
        return roofline_point(work, us / 1e6, peaks)


def summarize_cost(cost: ModelCost) -> CostSummary:
    """Return the summary of a model's cost."""
    by_type: dict[str, list[LayerCost]] = {}
    for layer in cost.layers:
        by_type.setdefault(layer.type, []).append(layer)
    types = [_cost_of_type(name, layers) for name, layers in by_type.items()]
    types.sort(key=lambda each: (each.flops, each.weight_bytes, each.output_bytes), reverse=True)
    return CostSummary(
        layers=len(cost.layers),
        parameters=cost.parameters,
        flops=cost.flops,
        weight_bytes=cost.weight_bytes,
        activation_bytes=cost.activation_bytes,
        peak_bytes=cost.peak_bytes,
        counter=cost.counter,
        types=tuple(types[:_MOST_TYPES]),
        unknown=cost.unknown,
    )


def _cost_of_type(name: str, layers: Sequence[LayerCost]) -> TypeCost:
    return TypeCost(
        type=name,
        layers=len(layers),
        parameters=sum(layer.parameters for layer in layers),
        flops=sum(layer.flops or 0 for layer in layers),
        weight_bytes=sum(layer.weight_bytes for layer in layers),
        output_bytes=sum(layer.output_bytes or 0 for layer in layers),
    )
