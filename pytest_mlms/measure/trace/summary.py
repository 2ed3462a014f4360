"""Summary of a trace for the results of its item."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pytest_mlms.measure.structure.summary import CostSummary
from pytest_mlms.measure.trace.correlate import parents_of
from pytest_mlms.measure.trace.device_time import DeviceTime, device_time
from pytest_mlms.measure.trace.latency import layer_time
from pytest_mlms.measure.trace.runs import TraceRun
from pytest_mlms.measure.trace.spans import Trace
from pytest_mlms.measure.trace.tables import LayerRow, layer_rows

__all__ = ["SlowLayer", "TraceSummary", "summarize"]

_SLOWEST = 5


@dataclass(frozen=True)
class SlowLayer:
    """One of the slowest layers: microseconds of a call, and the share of all layers."""

    name: str
    type: str
    us: float
    share: float


@dataclass(frozen=True)
class TraceSummary:
    """The field ``trace`` of an item's results.

    ``levels`` are those that the user asked for. ``layers`` is the number of layers, ``layers_us``
    is the sum of their latencies, ``call_us`` is the call that they are part of, and ``coverage``
    is their share of it. All of these, and ``slowest``, the slowest layers, are of one run.
    ``layers_sha256`` is the digest of their names and types in order, None where there are none.
    ``cost`` is the static cost of the model, None where its structure is unknown. ``ambiguous``
    counts the spans whose parent is ambiguous. ``unseen`` maps each level without a span or counter
    to the reason. ``faults`` maps each level that was cut short to the reason. ``gpu`` is the time
    in which a GPU works, None where no kernel was seen.
    """

    levels: tuple[str, ...]
    runs: tuple[TraceRun, ...]
    coverage: float | None
    layers: int
    slowest: tuple[SlowLayer, ...]
    ambiguous: int
    unseen: Mapping[str, str]
    faults: Mapping[str, str]
    layers_us: float | None = None
    call_us: float | None = None
    layers_sha256: str | None = None
    cost: CostSummary | None = None
    gpu: DeviceTime | None = None

    def runs_at(self, level: str) -> list[TraceRun]:
        """Return all runs of a level, void ones too."""
        return [run for run in self.runs if run.level == level]


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
