"""Analyses that XSP does not have: steps of a request, a GPU's time in a call, and counters."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import astuple, fields

from pytest_mlms.measure.trace.analyses.analysis import (
    Analysis,
    Row,
    for_each_trace,
    share_of,
    sums_by_key,
)
from pytest_mlms.measure.trace.context import TraceContext
from pytest_mlms.measure.trace.counters import counter_rows, phase_rows
from pytest_mlms.measure.trace.device_time import DeviceTime, device_time
from pytest_mlms.measure.trace.steps import step_rows


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
