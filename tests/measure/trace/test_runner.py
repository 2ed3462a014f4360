"""The procedure of a trace."""

from __future__ import annotations

import pytest

from pytest_mlms.core.errors import AgentError
from pytest_mlms.measure.agent.process import Reply
from pytest_mlms.measure.trace.records import TraceMetadata, TraceRun
from pytest_mlms.measure.trace.runner import TracePlan, assign_requests, run_trace
from pytest_mlms.measure.trace.spans import Trace
from tests.support.trace_agent import Answer, FakeAgent, status, trace_reply
from tests.support.traces import TraceWriter


class Traced:
    """A trace by a stand-in for an agent, with the traces that were kept after each run."""

    def __init__(self, agent: FakeAgent, *levels: str) -> None:
        self.kept: list[Trace] = []
        plan = TracePlan(levels, duration=0, budget=600)
        metadata = TraceMetadata("net")
        self.trace = run_trace(plan, agent.target, metadata, self.kept.append)

    @property
    def levels(self) -> list[str]:
        return [run.level for run in self.trace.runs]


def dies(count: int) -> Reply:
    raise AgentError("killed by SIGKILL")


def stepwise(count: int) -> Reply:
    return trace_reply(count, [status("layers", stepwise=True), status("perf")])


class AmbiguousKernels:
    """Answers of kernel runs: launches in two layers that cross, until ``later`` answers."""

    def __init__(self, later: Answer) -> None:
        self.later = later
        self.first = True

    def __call__(self, count: int) -> Reply:
        if not self.first:
            return self.later(count)
        self.first = count < 10
        crossing = [(0, 1000), (500, 1500)]
        return trace_reply(count, [status("cupti")], layers=crossing, launches=[(600, 700)])


def observed(count: int) -> Reply:
    return trace_reply(count, [status("cupti")])


def unobserved(count: int) -> Reply:
    return trace_reply(count, [status("cupti", False)])


def test_each_level_has_a_run_and_the_metadata_has_the_levels() -> None:
    traced = Traced(FakeAgent(), "layer", "hardware")
    assert traced.levels[0] == "model"
    assert {"layer", "hardware"} <= set(traced.levels)
    assert "layer+hardware" not in traced.levels
    assert traced.trace.metadata.levels == ("layer", "hardware")
    assert traced.trace.metadata.manifest == "net"


def test_layers_that_run_one_by_one_have_a_run_with_counters_between_them() -> None:
    traced = Traced(FakeAgent({"layer": stepwise}), "layer", "hardware")
    assert traced.levels[-1] == "layer+hardware"


def test_the_trace_so_far_is_kept_after_each_run() -> None:
    traced = Traced(FakeAgent(), "layer")
    assert [len(trace.runs) for trace in traced.kept] == [2, 3]


def test_an_agent_that_dies_at_a_level_costs_that_level_alone() -> None:
    traced = Traced(FakeAgent({"layer": dies}), "layer", "hardware")
    assert traced.levels[-1] == "hardware"
    faults = {run.level: run.fault for run in traced.trace.runs if run.fault}
    assert faults == {"layer": "killed by SIGKILL"}


def test_an_agent_that_dies_without_any_probe_is_an_error_after_the_trace_was_kept() -> None:
    kept: list[Trace] = []
    plan = TracePlan(("layer",), duration=0, budget=600)
    with pytest.raises(AgentError, match="SIGKILL"):
        run_trace(plan, FakeAgent({"model": dies}).target, TraceMetadata(), kept.append)
    assert kept[0].runs[0].fault == "killed by SIGKILL"


def kernel_runs(later: Answer) -> list[TraceRun]:
    """Trace kernels with ambiguous launches; return the kernel run and its repetition."""
    agent = FakeAgent({"kernel": AmbiguousKernels(later)}, latency=0.001)
    traced = Traced(agent, "kernel")
    return traced.trace.runs_at("kernel")


def test_a_kernel_run_with_ambiguous_launches_is_repeated_serialised() -> None:
    first, second = kernel_runs(later=observed)
    assert "repeated serialised" in first.void
    assert second.serialised
    assert not second.void


def test_a_kernel_run_without_ambiguous_launches_is_not_repeated() -> None:
    traced = Traced(FakeAgent({"kernel": observed}), "kernel")
    assert len(traced.trace.runs_at("kernel")) == 1


@pytest.mark.parametrize(("later", "reason"), [(dies, "the run failed"), (unobserved, "no probe")])
def test_the_first_kernel_run_counts_where_its_repetition_saw_nothing(
    later: Answer, reason: str
) -> None:
    first, second = kernel_runs(later)
    assert not first.void
    assert reason in second.void


def test_spans_without_a_request_get_that_of_the_call_around_them() -> None:
    writer = TraceWriter()
    run = writer.run("kernel")
    run.request = 5
    run.predict(0, 100)
    run.request = -1
    run.launch(10, 20, correlation=3)
    run.kernel("gemm", 500, 600, correlation=3)
    run.kernel("of nothing", 700, 800)
    trace = writer.build()
    assigned = assign_requests(trace)
    assert assigned.spans.request.tolist() == [5, 5, 5, -1]
    assert trace.spans.request.tolist() == [5, -1, -1, -1]
