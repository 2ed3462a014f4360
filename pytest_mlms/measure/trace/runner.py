"""Procedure of a trace: each level in a run of its own, so that no level pays for another's probes.

A level that a probe can't observe is recorded with the reason; the other levels are not affected.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from pytest_mlms.core.errors import AgentError
from pytest_mlms.measure.trace import BY_LAYER
from pytest_mlms.measure.trace.builder import TraceBuilder
from pytest_mlms.measure.trace.correlate import ancestors, parents_of
from pytest_mlms.measure.trace.level_run import LevelRunner
from pytest_mlms.measure.trace.metadata import TraceMetadata
from pytest_mlms.measure.trace.plan import TracePlan
from pytest_mlms.measure.trace.runs import TraceRun
from pytest_mlms.measure.trace.spans import Trace
from pytest_mlms.measure.trace.target import TraceTarget


def run_trace(
    plan: TracePlan,
    target: TraceTarget,
    metadata: TraceMetadata,
    keep: Callable[[Trace], None],
) -> Trace:
    """Trace the target at the levels of the plan, and return the trace.

    ``keep`` gets the trace so far after each run, because the process may be killed before the end.
    Raises AgentError where even calls without any probe fail.
    """
    builder = TraceBuilder(replace(metadata, levels=plan.levels))
    runner = LevelRunner(builder, plan, target)
    for level in plan.runs:
        if level == BY_LAYER and not _runs_stepwise(builder.runs):
            continue
        try:
            runner.run(level)
        except AgentError:
            if level == "model":
                raise
        finally:
            keep(assign_requests(builder.build()))
        if level == "kernel" and _has_ambiguous_parents(builder):
            _repeat_serialised(builder, runner)
            keep(assign_requests(builder.build()))
    return assign_requests(builder.build())


def assign_requests(trace: Trace) -> Trace:
    """Return the trace with a request for each span that its ancestors or its times determine.

    A framework launches kernels from threads of its own, too: what is called in any thread during a
    call is a part of it, as calls come one after another.
    """
    spans = trace.spans
    parents = parents_of(trace).index
    model_call = ancestors(spans, parents, "model")
    launch = ancestors(spans, parents, "library")
    for run in range(len(trace.runs)):
        calls = spans.find("model", run)
        calls = calls[np.argsort(spans.start[calls], kind="stable")]
        lost = np.flatnonzero(spans.in_run(run) & (model_call < 0) & (launch >= 0))
        if len(calls) and len(lost):
            began = spans.start[launch[lost]]
            place = np.searchsorted(spans.start[calls], began, side="right") - 1
            inside = (place >= 0) & (began < spans.end[calls[place]])
            model_call[lost[inside]] = calls[place[inside]]
    assignable = (spans.request < 0) & (model_call >= 0)
    request = spans.request.copy()
    request[assignable] = request[model_call[assignable]]
    return trace.with_spans(replace(spans, request=request))


def _runs_stepwise(runs: Sequence[TraceRun]) -> bool:
    """Return whether the predictor runs layers one by one, so that counters fit between them."""
    for run in runs:
        if run.level == "layer" and any(status.stepwise for status in run.probes):
            return True
    return False


def _has_ambiguous_parents(builder: TraceBuilder) -> bool:
    """Return whether a span of the last run could have another parent as well."""
    trace = builder.build()
    last = len(trace.runs) - 1
    ambiguous = parents_of(trace).ambiguous & trace.spans.in_run(last)
    return bool(ambiguous.any())


def _repeat_serialised(builder: TraceBuilder, runner: LevelRunner) -> None:
    """Repeat the kernel level, and wait for each launch; the first run stands where that fails."""
    first = len(builder.runs) - 1
    try:
        runner.run("kernel", serialised=True)
    except AgentError:
        builder.runs[-1] = replace(builder.runs[-1], void="the run failed")
        return
    if not builder.runs[-1].void:
        reason = "repeated serialised, because parents were ambiguous"
        builder.runs[first] = replace(builder.runs[first], void=reason)
