"""Procedure of a trace: each level in a run of its own, so that no level pays for another's probes.

A run starts an agent. The overhead of its probes is measured against calls without probes in the
same process, just before and after the traced calls. A level that a probe can't observe is recorded
with the reason; the other levels are not affected.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from mlms_predictors._run.probes import probes_at

from pytest_mlms.core.errors import AgentError
from pytest_mlms.measure.agent.predictor import Predictor
from pytest_mlms.measure.agent.process import Array, Reply
from pytest_mlms.measure.structure.cost import cost_of
from pytest_mlms.measure.trace import BY_LAYER, LEVELS
from pytest_mlms.measure.trace.builder import (
    PreparedRequest,
    TraceBuilder,
    add_reply,
    count_phases,
    probe_statuses,
    run_phases,
)
from pytest_mlms.measure.trace.correlate import ancestors, parents_of, trimmed_mean
from pytest_mlms.measure.trace.records import (
    Peaks,
    ProbeStatus,
    TraceMetadata,
    TraceRun,
    merge_statuses,
)
from pytest_mlms.measure.trace.roofline import work_of
from pytest_mlms.measure.trace.spans import Trace
from pytest_mlms.measure.trace.summary import summarize_cost

_COUNTERS_OF_LAYERS = ["perf"]  # quick enough to be read between layers


@dataclass(frozen=True)
class TracePlan:
    """Levels and limits of a trace.

    ``duration`` is the seconds of traced calls at each level. ``budget`` is the most seconds for
    the whole trace. ``functions`` are the native functions that bpftrace observes.
    """

    levels: tuple[str, ...]
    duration: float
    budget: float
    functions: tuple[str, ...] = ()

    @property
    def runs(self) -> list[str]:
        """Levels with a run in an agent, in the order in which they run.

        The model's own run comes first: it is the measure of all others.
        """
        runs = ["model"]
        deeper = LEVELS[LEVELS.index("model") + 1 :]
        for level in deeper:
            if level in self.levels:
                runs.append(level)
        if "layer" in self.levels and "hardware" in self.levels:
            runs.append(BY_LAYER)
        return runs

    @property
    def seconds(self) -> float:
        """Seconds of traced calls in a run."""
        share = self.budget / len(self.runs)
        return min(self.duration, share / 4)

    @property
    def longest(self) -> float:
        """The most seconds of a run."""
        return self.budget / len(self.runs)

    def probes(self, level: str) -> list[str]:
        """Return the names of the probes of a run; bpftrace only where functions are given."""
        names = probes_of(level)
        if "bpftrace" in names and not self.functions:
            names.remove("bpftrace")
        return names


def probes_of(level: str) -> list[str]:
    """Return the names of all probes of a run.

    Layers come from the framework's own profiler, which the agent starts by the level of the run.
    """
    if level == BY_LAYER:
        return list(_COUNTERS_OF_LAYERS)
    names: list[str] = probes_at(level)
    return names


@dataclass(frozen=True)
class TraceTarget:
    """How to start the predictor of a model, and how to make its inputs.

    ``open_predictor`` takes environment variables for the agent. ``make_batch`` returns the arrays
    that are traced in the agent. ``make_request`` prepares a request as a user's program would.
    ``layer_variables`` go to the agent whose layers are timed: each launch is waited for.
    """

    open_predictor: Callable[..., AbstractContextManager[Predictor]]
    make_batch: Callable[[Predictor], Mapping[str, Array]]
    make_request: Callable[[Predictor], PreparedRequest]
    layer_variables: Mapping[str, str] = field(default_factory=dict)


_LEAST_CALLS = 10
_MOST_CALLS = 200
_MOST_SENSOR_CALLS = 2000  # of a reply at the level hardware
_REPLY_SECONDS = 0.25  # of calls in one reply, which are lost where the agent dies
_WARM_UP_SECONDS = 0.05
_WARM_UP_CALLS = 3
_SERIALISED = {"CUDA_LAUNCH_BLOCKING": "1"}


class LevelRunner:
    """Makes the runs of a plan, and adds them to a trace."""

    def __init__(self, builder: TraceBuilder, plan: TracePlan, target: TraceTarget) -> None:
        self._builder = builder
        self._plan = plan
        self._target = target

    def run(self, level: str, *, serialised: bool = False) -> None:
        """Run one level in a new agent.

        A serialised run waits for each kernel launch. Raises AgentError where the agent dies; the
        record of the run then has the error as its ``fault``.
        """
        environment = dict(_SERIALISED) if serialised else {}
        if level == "layer":
            environment.update(self._target.layer_variables)
        progress = _Progress(self._builder, level, bool(environment))
        try:
            with self._target.open_predictor(environment) as predictor:
                batch = self._target.make_batch(predictor)
                self._trace_calls(predictor, batch, progress)
                if level == "model":
                    make_request = self._target.make_request
                    run_phases(self._builder, predictor, make_request)
                    if "hardware" in self._plan.levels:
                        count_phases(self._builder, predictor, make_request)
                    self._describe_model(predictor, batch)
        except AgentError as error:
            self._builder.runs[-1] = replace(self._builder.runs[-1], fault=str(error))
            raise

    def _trace_calls(
        self, predictor: Predictor, batch: Mapping[str, Array], progress: _Progress
    ) -> None:
        plan = self._plan
        warm_up = predictor.run(
            "single_stream",
            [batch],
            seconds=_WARM_UP_SECONDS,
            least=_WARM_UP_CALLS,
            longest=plan.budget,
        )
        latency = float(np.median(warm_up.latencies))
        level = progress.record.level
        calls = calls_per_reply(level, latency, plan.seconds)
        names = plan.probes(level)
        options = {"bpftrace": {"functions": list(plan.functions)}}
        began = time.monotonic()
        while self._needs_more(progress.record.calls, time.monotonic() - began):
            reply = predictor.trace(level, names, calls, batch, options, plan.budget)
            progress.add(reply, calls)
            if not _is_observed(progress.record):
                progress.update(void="no probe was available")
                return
            progress.measure_overhead()

    def _needs_more(self, calls: int, elapsed: float) -> bool:
        """Return whether a run needs more calls.

        It makes one call at least, the least number of calls while its share of the budget lasts,
        and calls for the seconds of the plan up to the most calls.
        """
        if not calls:
            return True
        if elapsed >= self._plan.longest:
            return False
        if calls < _LEAST_CALLS:
            return True
        return elapsed < self._plan.seconds and calls < _MOST_CALLS

    def _describe_model(self, predictor: Predictor, batch: Mapping[str, Array]) -> None:
        """Note the peaks of the device and the work of each layer, or why they are unknown."""
        try:
            peaks = Peaks(**predictor.peaks())
            self._note(peaks=peaks)
        except AgentError as error:
            self._note(peaks_unavailable=str(error))
        shapes = {name: array.shape for name, array in batch.items()}
        try:
            described = cost_of(predictor.structure(shapes))
            work = tuple(work_of(layer) for layer in described.layers)
            self._note(static=work, cost=summarize_cost(described))
        except AgentError as error:
            self._note(structure_unavailable=str(error))

    def _note(self, **facts: Any) -> None:
        self._builder.metadata = replace(self._builder.metadata, **facts)


class _Progress:
    """The calls of a run so far; keeps the record of the run in the trace up to date."""

    def __init__(self, builder: TraceBuilder, level: str, serialised: bool) -> None:
        self._builder = builder
        self._index = builder.add_run(TraceRun(level, serialised=serialised))
        self._plain: list[Array] = []
        self._traced: list[Array] = []

    @property
    def record(self) -> TraceRun:
        """The record of the run."""
        return self._builder.runs[self._index]

    def update(self, **changes: Any) -> None:
        """Replace fields of the record."""
        self._builder.runs[self._index] = replace(self.record, **changes)

    def add(self, reply: Reply, calls: int) -> None:
        """Add a reply of ``calls`` traced calls."""
        before = self.record
        traced = add_reply(self._builder, reply, self._index, before.calls)
        self._traced.append(traced)
        self._plain.append(reply.arrays["plain"])
        self.update(
            calls=before.calls + calls,
            process=reply.facts["process"],
            probes=merge_statuses(before.probes, probe_statuses(reply)),
        )

    def measure_overhead(self) -> None:
        """Set the latencies without and with probes, over all replies so far."""
        plain = _microseconds(self._plain)
        traced = _microseconds(self._traced)
        self.update(plain_us=plain, traced_us=traced, overhead=traced / plain - 1)


def calls_per_reply(level: str, latency: float, seconds: float) -> int:
    """Return how many calls one reply has, of ``latency`` seconds each.

    A reply is short, so that little is lost where the agent dies. At the level ``hardware`` it has
    as many calls as fit, because sensors are read at intervals of many short calls.
    """
    latency = max(latency, 1e-6)
    most = _LEAST_CALLS
    if level == "hardware":
        most = int(np.clip(seconds / latency, _LEAST_CALLS, _MOST_SENSOR_CALLS))
    return int(np.clip(_REPLY_SECONDS / latency, 1, most))


def _is_observed(run: TraceRun) -> bool:
    """Return whether anything observed the level; counters by layer need layers and counters."""
    if run.level == "model":
        return True
    available = [status.available for status in _observers(run)]
    if run.level == BY_LAYER:
        return all(available)
    return any(available)


def _observers(run: TraceRun) -> Iterable[ProbeStatus]:
    names = probes_of(run.level)
    if run.level in ("layer", BY_LAYER):
        names.append("layers")
    return [status for status in run.probes if status.probe in names]


def _microseconds(parts: list[Array]) -> float:
    return trimmed_mean(np.concatenate(parts)) / 1000


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
