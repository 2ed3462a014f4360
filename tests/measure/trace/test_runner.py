"""Plans of traces, one run at a level, and all of them."""

from __future__ import annotations

import pytest

from pytest_mlms.core.errors import AgentError
from pytest_mlms.measure.agent.process import Reply
from pytest_mlms.measure.trace.builder import TraceBuilder
from pytest_mlms.measure.trace.records import Peaks, TraceMetadata, TraceRun
from pytest_mlms.measure.trace.runner import (
    LevelRunner,
    TracePlan,
    assign_requests,
    calls_per_reply,
    probes_of,
    run_trace,
)
from pytest_mlms.measure.trace.spans import Trace
from tests.support.trace_agent import PROCESS, Answer, FakeAgent, status, trace_reply
from tests.support.traces import TraceWriter


def plan(*levels: str, **facts: tuple[str, ...]) -> TracePlan:
    return TracePlan(levels, duration=2, budget=60, **facts)


def test_each_level_has_a_run_after_that_of_the_model() -> None:
    assert plan("layer").runs == ["model", "layer"]
    assert plan("hardware", "kernel").runs == ["model", "kernel", "hardware"]


def test_layers_with_counters_have_one_more_run() -> None:
    runs = plan("hardware", "layer", "model").runs
    assert runs == ["model", "layer", "hardware", "layer+hardware"]


def test_a_run_has_its_share_of_the_budget_and_traces_for_a_quarter_of_it_at_most() -> None:
    long = plan("layer")
    assert long.longest == 30
    assert long.seconds == 2
    short = TracePlan(("layer",), duration=20, budget=60)
    assert short.seconds == pytest.approx(7.5)


def test_bpftrace_runs_only_for_given_functions() -> None:
    assert plan("library").probes("library") == ["cupti", "kineto"]
    with_functions = plan("library", functions=("libm:exp",))
    assert "bpftrace" in with_functions.probes("library")


def test_the_probes_of_a_run_are_those_that_serve_its_level() -> None:
    assert probes_of("model") == []
    assert probes_of("kernel") == ["cupti", "kineto"]
    assert set(probes_of("hardware")) == {
        "gpm",
        "hwmon",
        "io",
        "memory",
        "nvml",
        "perf",
        "rapl",
    }
    assert probes_of("layer+hardware") == ["perf"]


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
