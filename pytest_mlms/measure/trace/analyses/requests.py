"""Analyses that XSP does not have: steps of a request, a GPU's time in a call, and counters."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import astuple, dataclass, fields
from typing import NamedTuple

import numpy as np

from pytest_mlms.core.arrays import Array
from pytest_mlms.measure.trace.analyses.analysis import (
    Analysis,
    Row,
    for_each_trace,
    share_of,
    sums_by_key,
)
from pytest_mlms.measure.trace.correlate import Intervals, enclosing, grouped, trimmed_mean
from pytest_mlms.measure.trace.counters import counter_rows, phase_rows
from pytest_mlms.measure.trace.records import DeviceTime
from pytest_mlms.measure.trace.spans import Spans, Trace
from pytest_mlms.measure.trace.summary import TraceContext, device_time


@dataclass(frozen=True)
class StepRow:
    """A phase of a request, or a step inside of the phase ``within``.

    ``calls`` is how often a request runs it. ``latency_us`` is the time of all its calls in a
    request, in microseconds, and ``share`` is its part of the whole request.
    """

    step: str
    within: str
    calls: float
    latency_us: float
    share: float


class _StepKey(NamedTuple):
    step: str
    within: str


_REQUEST = _StepKey("request", "")


def step_rows(trace: Trace) -> list[StepRow]:
    """Return a row for the request, each phase and each step, in the order in which they begin.

    Empty without a run at the level ``application``.
    """
    run = trace.run_at("application")
    spans = trace.spans
    steps = spans.find("application", run)
    start = spans.start[steps]
    end = spans.end[steps]
    steps = steps[np.lexsort((-end, start))]
    last_request = int(spans.request[steps].max(initial=-1))
    requests = last_request + 1
    groups = grouped(_step_keys(trace, steps), steps)
    whole = math.nan
    if _REQUEST in groups:
        whole = _microseconds(spans, groups[_REQUEST], requests)
    rows = []
    for key, same in groups.items():
        latency_us = _microseconds(spans, same, requests)
        row = StepRow(
            step=key.step,
            within=key.within,
            calls=len(same) / requests,
            latency_us=latency_us,
            share=latency_us / whole,
        )
        rows.append(row)
    return rows


def _microseconds(spans: Spans, steps: Array, requests: int) -> float:
    """Return the trimmed mean over requests of the time that the steps take in each."""
    durations = spans.duration[steps]
    of_step = spans.request[steps]
    of_request = np.bincount(of_step, durations, requests)
    return trimmed_mean(of_request) / 1000


def _step_keys(trace: Trace, steps: Array) -> list[_StepKey]:
    """Return the key of each of the steps, which are sorted by (start, -end)."""
    spans = trace.spans
    names = trace.texts(spans.name[steps])
    around = enclosing(Intervals(spans.start[steps], spans.end[steps])).index.tolist()
    return [
        _StepKey(name, names[outer] if outer >= 0 else "")
        for name, outer in zip(names, around, strict=True)
    ]


def _steps(trace: TraceContext) -> Iterable[Row]:
    for row in step_rows(trace.trace):
        yield astuple(row)


def _gpu(trace: TraceContext) -> Iterable[Row]:
    """Yield what a GPU does in a call, beside a call without any probe."""
    found = device_time(trace.trace)
    if found is not None:
        yield (trace.latency_us, *astuple(found), share_of(found.busy_us, trace.latency_us or 0))


def _counters(trace: TraceContext) -> Iterable[Row]:
    for row in phase_rows(trace.trace):
        yield astuple(row)


def _counters_by_layer(trace: TraceContext) -> Iterable[Row]:
    """Yield what each layer counts, with its share of what all layers count."""
    rows = counter_rows(trace.trace)
    totals = sums_by_key((row.counter, row.per_call) for row in rows)
    for row in rows:
        share = share_of(row.per_call, totals[row.counter])
        yield (*astuple(row), share)


STEPS = Analysis(
    name="steps",
    number="",
    description="each phase of a request with its steps: pre-process, predict, post-process",
    columns=("step", "within", "calls", "latency_us", "share"),
    rows=for_each_trace(_steps),
    largest="latency_us",
)

GPU = Analysis(
    name="gpu",
    number="",
    description="the time in which a GPU works during a call: in all, in kernels and in copies",
    columns=("latency_us", *(field.name for field in fields(DeviceTime)), "share"),
    rows=for_each_trace(_gpu),
    levels=("kernel",),
)

COUNTERS = Analysis(
    name="counters",
    number="",
    description="what a call adds to each counter, by phase; and the readings of states",
    columns=("phase", "counter", "unit", "per_call", "least", "mean", "most", "readings"),
    rows=for_each_trace(_counters),
    levels=("hardware",),
)

COUNTERS_BY_LAYER = Analysis(
    name="counters-by-layer",
    number="",
    description="what a call adds to each counter, by layer",
    columns=("index", "layer", "type", "counter", "unit", "per_call", "calls", "share"),
    rows=for_each_trace(_counters_by_layer),
    levels=("layer", "hardware"),
    largest="share",
)

ANALYSES = [STEPS, GPU, COUNTERS, COUNTERS_BY_LAYER]
