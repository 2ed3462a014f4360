"""Tests of the estimates over processes, and of how many processes decide a limit."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_mlms.agent.predictor import ScenarioRun
from pytest_mlms.errors import OutputError
from pytest_mlms.evaluate import performance
from pytest_mlms.evaluate.limits import judge
from pytest_mlms.evaluate.performance import (
    Measurement,
    PerformancePlan,
    ProcessRecord,
    ProcessResult,
    estimate_performance,
    measure_performance,
)
from pytest_mlms.quantities import quantities_of
from pytest_mlms.records import Estimate, Limit, Place, Verdict

PLACE = Place(Path("m.yaml"), 1)
LIMIT = Limit("latency_p50", 0.010, PLACE)
P99_LIMIT = Limit("latency_p99", 1, PLACE)


def scenario_run(latencies: Sequence[float], gap: float = 0.0) -> ScenarioRun:
    """Return a run with these latencies, and ``gap`` seconds between the calls."""
    durations = np.asarray(latencies, float)
    ends_with_gaps = np.cumsum(durations + gap)
    start = np.concatenate([[0.0], ends_with_gaps[:-1]])
    times = {
        "start": start,
        "end": start + durations,
        "wait": np.zeros(2),
        "at": np.array([0, len(start)]),
    }
    return ScenarioRun(times, {"logits": np.array([[1.0, 2.0]])}, "digest", 100)


def with_output(values: Any) -> ProcessResult:
    run = scenario_run([0.01])
    outputs = {"logits": np.array(values)}
    return result_of(ScenarioRun(run.times, outputs, "digest", 100))


def result_of(run: ScenarioRun, **changes: Any) -> ProcessResult:
    fields = {
        "start_seconds": 0.1,
        "load_seconds": 0.2,
        "first_seconds": 0.3,
        "loop_seconds": 1.0,
        "warmup_calls": 8,
        "steady": True,
        "peak_bytes": 1000,
        "peak_is_since_load": True,
        "calls": len(run.latencies),
        "output_sha256": "digest",
        "waited": None,
        "load_waited": 0.0,
        "first_waited": 0.0,
    }
    record = ProcessRecord(**{**fields, **changes})
    return ProcessResult(record, run, float(run.latencies.mean()))


def process(latency: float, calls: int = 1000) -> ProcessResult:
    return result_of(scenario_run([latency] * calls))


def plan(**changes: Any) -> PerformancePlan:
    fields = {
        "scenario": "single_stream",
        "batch_size": 4,
        "processes": 3,
        "duration": 1.0,
        "budget": 60.0,
        "limits": (),
    }
    return PerformancePlan(**{**fields, **changes})


def estimate(results: Sequence[ProcessResult]) -> dict[str, Estimate]:
    return estimate_performance(results, confidence=0.95)


def test_every_quantity_of_performance_has_an_estimator() -> None:
    names = {quantity.name for quantity in quantities_of("performance")}
    assert set(estimate([process(0.01)])) == names


def test_processes_are_the_replicates_not_calls() -> None:
    p50 = estimate([process(0.010), process(0.011), process(0.012)])["latency_p50"]
    assert p50.value == pytest.approx(0.011)
    assert p50.replicates == 3
    assert p50.of == "processes"
    half = 4.3027 * 0.001 / 3**0.5
    assert p50.high - p50.value == pytest.approx(half, rel=1e-4)


def test_values_of_a_process_become_estimates() -> None:
    found = estimate([process(0.01)])
    assert found["load_time"].value == 0.2
    assert found["first_inference"].value == 0.3
    assert found["peak_memory"].value == 1000
    assert found["latency_mean"].value == pytest.approx(0.01)


def test_a_plan_with_limits_shares_its_confidence_between_the_looks() -> None:
    assert plan().confidence == pytest.approx(0.95)
    assert plan(limits=(LIMIT,)).confidence == pytest.approx(1 - 0.05 / 3)


def test_a_single_stream_counts_the_calls_alone() -> None:
    run = scenario_run([0.010] * 100, gap=0.010)
    seconds = performance._seconds_per_input(plan(batch_size=4), run)
    assert seconds == pytest.approx(0.010 / 4)


def test_offline_counts_the_gaps_between_calls_too() -> None:
    run = scenario_run([0.010] * 100, gap=0.010)
    seconds = performance._seconds_per_input(plan(scenario="offline", batch_size=4), run)
    assert seconds == pytest.approx(1.99 / 400)


def test_throughput_is_that_of_a_fixed_amount_of_work() -> None:
    results = [process(0.010), process(0.010), process(0.010), process(0.170)]
    found = estimate(results)
    assert found["throughput"].value == pytest.approx(4 / 0.200)
    assert found["throughput"].value == pytest.approx(1 / found["latency_mean"].value)


def test_a_stalled_process_does_not_make_the_interval_of_throughput_unbounded() -> None:
    limits = [Limit("throughput", bound, PLACE) for bound in (1e-3, 50.0, 1e15)]
    results = [process(0.010), process(0.010), process(0.010), process(0.170)]
    estimates = estimate_performance(results, plan(limits=limits).confidence)
    verdicts = [decision.verdict for decision in judge(limits, estimates)]
    assert verdicts == [Verdict.PASSED, Verdict.INCONCLUSIVE, Verdict.FAILED]


def test_a_percentile_with_too_few_calls_says_how_many_it_needs() -> None:
    found = estimate([process(0.01, calls=60)] * 3)
    assert found["latency_p95"].lacking == ""
    assert found["latency_p99"].lacking == "needs 299 calls a process, had 60: raise --mlms-budget"


def test_a_limit_on_a_percentile_raises_the_number_of_calls() -> None:
    assert plan().least == 16
    assert plan(limits=(LIMIT,)).least == 16
    assert plan(limits=(P99_LIMIT,)).least == 299


def test_memory_whose_peak_can_not_be_reset_is_not_judged() -> None:
    result = result_of(scenario_run([0.01]), peak_is_since_load=False)
    found = estimate([result] * 3)
    assert "can't reset the peak" in found["peak_memory"].lacking


class FakeProcesses:
    """Processes with the given latencies that take ``seconds`` each, by a clock of their own."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, latencies: Sequence[float], seconds: float = 1.0
    ) -> None:
        self.now = 0.0
        self.kept: list[int] = []
        self._latencies = iter(latencies)
        self._seconds = seconds
        monkeypatch.setattr(performance, "_one_process", self._one_process)
        monkeypatch.setattr("pytest_mlms.evaluate.performance.time.monotonic", lambda: self.now)

    def _one_process(self, *arguments: Any) -> ProcessResult:
        self.now += self._seconds
        return process(next(self._latencies), calls=100)

    @contextlib.contextmanager
    def _predictor(self) -> Iterator[Any]:
        yield None

    def _keep(self, number: int, result: ProcessResult) -> None:
        self.kept.append(number)

    def measure(self, plan: PerformancePlan) -> Measurement:
        return measure_performance(plan, self._predictor, lambda predictor: [], self._keep)


def verdicts(measurement: Measurement) -> list[Verdict]:
    return [decision.verdict for decision in measurement.decisions]


def test_a_clear_case_takes_one_look(monkeypatch: pytest.MonkeyPatch) -> None:
    fakes = FakeProcesses(monkeypatch, [0.0050, 0.0051, 0.0049])
    measurement = fakes.measure(plan(limits=(LIMIT,)))
    assert verdicts(measurement) == [Verdict.PASSED]
    assert fakes.kept == [0, 1, 2]


def test_an_open_case_measures_more_until_it_is_clear(monkeypatch: pytest.MonkeyPatch) -> None:
    first_look = [0.0090, 0.0095, 0.0099]
    second_look = [0.0092, 0.0094, 0.0093]
    fakes = FakeProcesses(monkeypatch, first_look + second_look)
    measurement = fakes.measure(plan(limits=(LIMIT,)))
    assert verdicts(measurement) == [Verdict.PASSED]
    assert len(fakes.kept) == 6


def test_a_case_that_stays_open_ends_after_the_last_look(monkeypatch: pytest.MonkeyPatch) -> None:
    fakes = FakeProcesses(monkeypatch, [0.0099, 0.0101] * 6)
    measurement = fakes.measure(plan(limits=(LIMIT,)))
    assert verdicts(measurement) == [Verdict.INCONCLUSIVE]
    assert measurement.estimates["latency_p50"].replicates == 12


def test_a_spent_budget_ends_an_open_case(monkeypatch: pytest.MonkeyPatch) -> None:
    fakes = FakeProcesses(monkeypatch, [0.0099, 0.0101] * 6, seconds=10)
    measurement = fakes.measure(plan(limits=(LIMIT,), budget=50))
    assert verdicts(measurement) == [Verdict.INCONCLUSIVE]
    assert measurement.estimates["latency_p50"].replicates == 5


def test_too_few_calls_do_not_start_more_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    fakes = FakeProcesses(monkeypatch, [0.005] * 12)
    measurement = fakes.measure(plan(limits=(P99_LIMIT,)))
    assert verdicts(measurement) == [Verdict.INCONCLUSIVE]
    assert len(fakes.kept) == 3


def test_processes_that_compute_different_outputs_are_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    results = iter([with_output([[1.0, 2.0]]), with_output([[1.0, 9.0]])])
    monkeypatch.setattr(performance, "_one_process", lambda *arguments: next(results))
    predictor: Any = contextlib.nullcontext(None)
    message = "process 2 computed another 'logits' than process 1 .* up to 7 off"
    with pytest.raises(OutputError, match=message):
        measure_performance(plan(), lambda: predictor, lambda _: [], lambda number, result: None)


@pytest.mark.parametrize(
    ("first", "second"),
    [([[1.0, 2.0]], [[1.0, 2.01]]), ([[5.0]], [[5.0001]]), (3, 3)],
)
def test_outputs_may_differ_by_rounding(first: Any, second: Any) -> None:
    performance._check_same_outputs([with_output(first), with_output(second)])


@pytest.mark.parametrize(
    ("first", "second", "difference"),
    [
        ([[1.0, 2.0]], [[1.0, 2.1]], "up to 0.1 off"),
        ([[1.0, 2.0]], [[1.0, 2.0], [1.0, 2.0]], r"\(2, 2\) for \(1, 2\)"),
        ([[True, False]], [[True, True]], "up to 1 off"),
    ],
)
def test_outputs_that_differ_by_more_than_rounding_are_an_error(
    first: Any, second: Any, difference: str
) -> None:
    with pytest.raises(OutputError, match=difference):
        performance._check_same_outputs([with_output(first), with_output(second)])
