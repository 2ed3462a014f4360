"""Summary of a trace: its latencies, the time in which a GPU works, and its layers.

The latency of a level comes from the run in which it was the deepest level, so that it does not
contain the overhead of profiling deeper levels. Means are trimmed: the longest and the shortest
fifth of the calls are left out, as in XSP (https://arxiv.org/abs/1908.06869), for all layers the
same calls. On a busy machine the runs of two levels differ by more than their overhead, so that a
share is always of the run in which it was measured.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pytest_mlms.measure.trace.correlate import parents_of, sums_by
from pytest_mlms.measure.trace.intervals import trimmed_mean
from pytest_mlms.measure.trace.records import DeviceTime, SlowLayer, TraceRun, TraceSummary
from pytest_mlms.measure.trace.spans import Spans, Trace
from pytest_mlms.measure.trace.tables import LayerRow, layer_rows, layers_of_run

__all__ = ["SlowLayer", "TraceSummary", "summarize"]


Array = NDArray[Any]


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
