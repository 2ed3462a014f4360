"""Tests of figures without the wait for a core, and of what is said of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pytest_mlms.core.records import Estimate, Limit, Place, Verdict
from pytest_mlms.measure.agent.predictor import ScenarioRun
from pytest_mlms.measure.agent.process import Array
from pytest_mlms.measure.evaluate.contention import (
    explain_wait,
    latencies_less_wait,
    latencies_of_running,
    waited,
)
from pytest_mlms.measure.evaluate.limits import decide, explain, judge, worst
from pytest_mlms.measure.evaluate.process_result import (
    ProcessRecord,
    ProcessResult,
    estimate_performance,
)
from tests.support.processes import result_of, scenario_run

PLACE = Place(Path("m.yaml"), 7)
AT_MOST = Limit("latency_p50", 0.005, PLACE)
AT_LEAST = Limit("throughput", 200.0, PLACE)
EARLIER = 3.0  # seconds that the thread had waited before


def times_of(latencies: Sequence[float], waits: Sequence[float]) -> dict[str, Array]:
    """Return the times of calls, each with its wait, where the counter is read after each."""
    end = np.cumsum(latencies)
    counter = EARLIER + np.concatenate([[0.0], np.cumsum(waits)])
    return {
        "start": end - latencies,
        "end": end,
        "wait": counter,
        "at": np.arange(len(latencies) + 1.0),
    }


def read_at_the_ends(times: dict[str, Array]) -> dict[str, Array]:
    """Return the same as the offline scenario has it."""
    return {**times, "wait": times["wait"][[0, -1]], "at": times["at"][[0, -1]]}


HALF = times_of([0.008, 0.004, 0.008, 0.004], [0.004, 0.0, 0.004, 0.0])


def process(times: dict[str, Array]) -> ProcessResult:
    latencies = times["end"] - times["start"]
    record = ProcessRecord(
        start_seconds=0.1,
        load_seconds=0.5,
        first_seconds=0.3,
        loop_seconds=1.0,
        warmup_calls=8,
        steady=True,
        peak_bytes=1000,
        peak_is_since_load=True,
        calls=len(latencies),
        output_sha256="digest",
        waited=waited(times),
        load_waited=0.1,
        first_waited=0.2,
        in_full=True,
    )
    run = ScenarioRun(times, {}, "digest", 1000)
    return ProcessResult(record, run, float(latencies.mean()))


def estimate(value: float, less_wait: float | None) -> Estimate:
    return Estimate(value, 0.99 * value, 1.01 * value, 0.95, 3, "processes", less_wait=less_wait)


def test_the_share_of_the_wait_is_that_of_the_timed_run() -> None:
    assert waited(HALF) == pytest.approx(1 / 3)


def test_a_kernel_that_counts_no_wait_tells_nothing() -> None:
    times = {**HALF, "wait": np.zeros(5)}
    assert waited(times) is None
    assert estimate_performance([process(times)], 0.95)["latency_p50"].less_wait is None


def test_the_wait_of_a_call_is_taken_from_its_latency() -> None:
    assert latencies_less_wait(HALF) == pytest.approx([0.004] * 4)


def test_a_call_that_mostly_waited_has_no_latency_of_its_own() -> None:
    times = times_of([0.010, 0.001, 0.010, 0.001], [0.0099, 0.0, 0.001, 0.0])
    expected = [math.nan, 0.001, 0.009, 0.001]
    assert latencies_of_running(times) == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize(
    ("latencies", "wait", "expected"),
    [
        ([0.008, 0.004, 0.008, 0.004], 0.008, [0.004, 0.004, 0.004, 0.004]),
        ([0.009, 0.004, 0.008, 0.004], 0.003, [0.007, 0.004, 0.007, 0.004]),
        ([0.009, 0.004, 0.008, 0.003], 0.012, [0.003, 0.003, 0.003, 0.003]),
        ([0.004, 0.004], 0.0, [0.004, 0.004]),
        ([0.004, 0.004], 0.1, [0.0, 0.0]),
    ],
)
def test_a_wait_that_was_read_at_both_ends_cuts_the_longest_calls_to_a_level(
    latencies: list[float], wait: float, expected: list[float]
) -> None:
    waits = [wait] + [0.0] * (len(latencies) - 1)
    times = read_at_the_ends(times_of(latencies, waits))
    assert latencies_less_wait(times) == pytest.approx(expected)


def test_estimates_of_times_and_rates_have_a_value_without_the_wait() -> None:
    found = estimate_performance([process(HALF)], 0.95)
    assert found["latency_p90"].less_wait == pytest.approx(0.004)
    assert found["latency_mean"].less_wait == pytest.approx(0.004)
    assert found["throughput"].less_wait == pytest.approx(250)
    assert found["load_time"].less_wait == pytest.approx(0.4)
    assert found["first_inference"].less_wait == pytest.approx(0.1)
    assert found["peak_memory"].less_wait is None


@pytest.mark.parametrize(
    ("limit", "value", "less_wait", "verdict"),
    [
        (AT_MOST, 0.008, 0.004, Verdict.INVALID),
        (AT_MOST, 0.008, 0.006, Verdict.FAILED),
        (AT_MOST, 0.008, None, Verdict.FAILED),
        (AT_MOST, 0.004, 0.002, Verdict.PASSED),
        (AT_MOST, 0.005, 0.002, Verdict.INCONCLUSIVE),
        (AT_LEAST, 100.0, 250.0, Verdict.INVALID),
        (AT_LEAST, 100.0, 150.0, Verdict.FAILED),
    ],
)
def test_a_limit_that_only_contention_breaks_is_invalid(
    limit: Limit, value: float, less_wait: float | None, verdict: Verdict
) -> None:
    assert decide(limit, estimate(value, less_wait)) is verdict


def test_an_invalid_limit_is_explained_with_the_value_without_the_wait() -> None:
    (decision,) = judge([AT_MOST], {"latency_p50": estimate(0.008, 0.004)})
    text = explain(decision)
    assert "latency_p50 is not at most 5.00 ms: measured 8.00 ms" in text
    assert "contention broke it, 4.00 ms without the wait for a core meets the limit; me" in text


def test_a_limit_that_is_broken_in_any_case_fails_the_item() -> None:
    assert worst([Verdict.INVALID, Verdict.FAILED]) is Verdict.FAILED
    assert worst([Verdict.INVALID, Verdict.INCONCLUSIVE]) is Verdict.INVALID


def test_a_large_wait_is_explained_with_the_mean_without_it() -> None:
    estimates = {"latency_mean": estimate(0.008, 0.004)}
    assert explain_wait([0.54, 0.46], estimates) == (
        "the measuring thread waited for a core 50 % of the time (mean latency 8.00 ms, "
        "4.00 ms without the wait); measure where nothing else runs, or on cores of its own (taskset)"
    )


@pytest.mark.parametrize("shares", [[], [None], [0.01, 0.05]])
def test_a_small_or_unknown_wait_is_not_explained(shares: list[float | None]) -> None:
    assert explain_wait(shares, {"latency_mean": estimate(1, 1)}) == ""


def test_a_run_that_only_waited_has_no_rate_without_the_wait() -> None:
    run = scenario_run([0.001] * 100)
    times = {**run.times, "wait": np.array([0.0, 1.0])}
    waited_only = result_of(replace(run, times=times), waited=1.0)
    estimates = estimate_performance([waited_only] * 3, 0.95)
    assert estimates["throughput"].less_wait is None
    assert estimates["latency_p50"].less_wait == 0
