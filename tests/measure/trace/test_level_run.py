"""Runs of one level."""

from __future__ import annotations

import pytest

from pytest_mlms.core.errors import AgentError
from pytest_mlms.measure.agent.process import Reply
from pytest_mlms.measure.trace.builder import TraceBuilder
from pytest_mlms.measure.trace.records import Peaks, TraceRun
from pytest_mlms.measure.trace.runner import LevelRunner, TracePlan, calls_per_reply
from tests.support.trace_agent import PROCESS, FakeAgent, status, trace_reply


def run_level(agent: FakeAgent, level: str, **options: bool) -> TraceBuilder:
    """Run one level of a plan that ends at the least number of calls."""
    builder = TraceBuilder()
    plan = TracePlan(("layer",), duration=0, budget=600)
    LevelRunner(builder, plan, agent.target).run(level, **options)
    return builder


def run_of(agent: FakeAgent, level: str) -> TraceRun:
    return run_level(agent, level).runs[0]


def dying_after(calls: int) -> FakeAgent:
    """An agent that dies at the first call after so many."""
    made = 0

    def answer(count: int) -> Reply:
        nonlocal made
        if made >= calls:
            raise AgentError("killed by SIGKILL")
        made += count
        return trace_reply(count, [status("layers", fault="lost one")])

    return FakeAgent({"layer": answer})


def test_a_run_has_calls_latencies_overhead_and_process() -> None:
    run = run_of(FakeAgent(), "layer")
    assert run.calls == 10
    assert run.process == PROCESS
    assert run.plain_us == 1
    assert run.traced_us == 2
    assert run.overhead == pytest.approx(1)
    assert [probe.probe for probe in run.probes] == ["layers", "perf"]


def test_short_calls_are_made_together() -> None:
    agent = FakeAgent(latency=0.001)
    run = run_of(agent, "layer")
    assert run.calls == 10
    assert agent.traced == ["layer"]


def test_a_run_that_no_probe_observes_is_void_and_ends_at_once() -> None:
    def answer(count: int) -> Reply:
        return trace_reply(count, [status("layers", False, reason="no layer profiler")])

    agent = FakeAgent({"layer": answer})
    run = run_of(agent, "layer")
    assert run.void == "no probe was available"
    assert run.overhead is None
    assert len(agent.traced) == 1


@pytest.mark.parametrize("missing", ["layers", "perf"])
def test_counters_by_layer_need_the_layers_and_the_counters(missing: str) -> None:
    def answer(count: int) -> Reply:
        names = ("layers", "perf")
        return trace_reply(count, [status(name, name != missing) for name in names])

    run = run_of(FakeAgent({"layer+hardware": answer}), "layer+hardware")
    assert run.void == "no probe was available"


def test_one_of_several_probes_is_enough_for_a_level() -> None:
    def answer(count: int) -> Reply:
        return trace_reply(count, [status("cupti", False), status("kineto")])

    assert not run_of(FakeAgent({"kernel": answer}), "kernel").void


def test_an_agent_that_dies_leaves_what_was_traced_and_the_reason() -> None:
    builder = TraceBuilder()
    runner = LevelRunner(builder, TracePlan(("layer",), 0, 600), dying_after(2).target)
    with pytest.raises(AgentError, match="SIGKILL"):
        runner.run("layer")
    (run,) = builder.runs
    assert run.fault == "killed by SIGKILL"
    assert run.calls == 2
    assert run.overhead == pytest.approx(1)
    assert run.probes[0].fault == "lost one"
    assert builder.build().spans.at("layer").sum() == 2


def test_a_serialised_run_waits_for_each_launch() -> None:
    agent = FakeAgent({"kernel": lambda count: trace_reply(count, [status("cupti")])})
    builder = run_level(agent, "kernel", serialised=True)
    assert agent.environments == [{"CUDA_LAUNCH_BLOCKING": "1"}]
    assert builder.runs[0].serialised


def test_layers_are_timed_under_the_variables_of_their_predictor() -> None:
    agent = FakeAgent(layer_variables={"CUDA_LAUNCH_BLOCKING": "1"})
    assert run_of(agent, "layer").serialised
    assert not run_of(agent, "hardware").serialised
    assert agent.environments == [{"CUDA_LAUNCH_BLOCKING": "1"}, {}]


def test_the_run_of_the_model_makes_requests_and_describes_model_and_device() -> None:
    builder = run_level(FakeAgent(), "model")
    assert [run.level for run in builder.runs] == ["model", "application"]
    assert builder.metadata.peaks == Peaks(1e9, 1e9, "by hand")
    assert builder.metadata.structure_unavailable == "no structure"


def test_unknown_peaks_have_a_reason() -> None:
    builder = run_level(FakeAgent(peaks_error="no product"), "model")
    assert builder.metadata.peaks is None
    assert builder.metadata.peaks_unavailable == "no product"


@pytest.mark.parametrize(
    ("level", "latency", "calls"),
    [
        ("layer", 1.0, 1),
        ("layer", 0.05, 5),
        ("layer", 0.001, 10),
        ("layer", 0.0, 10),
        ("hardware", 0.001, 250),
        ("hardware", 1e-5, 2000),
        ("hardware", 1.0, 1),
    ],
)
def test_a_reply_has_a_quarter_of_a_second_of_calls_up_to_a_limit(
    level: str, latency: float, calls: int
) -> None:
    assert calls_per_reply(level, latency, seconds=2) == calls
