"""Contention for cores, plateaus of latency, and growth of memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlms_predictors._run.replies import UsageReply

from pytest_mlms.core.arrays import Array
from pytest_mlms.core.records import Estimate, Limit, Place, Verdict
from pytest_mlms.measure.agent.predictor import Predictor, ScenarioRun
from pytest_mlms.measure.evaluate.limits import decide, explain, judge, worst
from pytest_mlms.measure.evaluate.process_result import (
    ProcessRecord,
    ProcessResult,
    estimate_performance,
)
from pytest_mlms.measure.evaluate.steadiness import (
    SETTLED,
    Settling,
    explain_wait,
    growth_between,
    latencies_less_wait,
    latencies_of_running,
    settling_of,
    slope_of,
    waited,
    watch_growth,
)
from tests.support.load_agents import open_agent
from tests.support.processes import result_of, scenario_run
from tests.support.project import launch

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


seeds = st.integers(0, 10**6)


def noisy(levels: Array, seed: int = 0, scatter: float = 0.05) -> Array:
    generator = np.random.default_rng(seed)
    return np.asarray(levels * np.exp(scatter * generator.normal(size=len(levels))))


@given(seeds, st.sampled_from([16, 64, 1000, 10_000]))
def test_calls_of_one_level_are_settled(seed: int, count: int) -> None:
    settling = settling_of([noisy(np.ones(50), seed), noisy(np.ones(count), seed + 1, 0.02)])
    assert settling.is_settled


def test_equal_calls_are_settled() -> None:
    assert settling_of([np.ones(8), np.ones(100)]) == SETTLED


@given(seeds, st.floats(0.2, 0.8), st.floats(1.1, 10), st.booleans())
def test_a_step_inside_of_the_run_is_found(
    seed: int, place: float, factor: float, rises: bool
) -> None:
    levels = np.where(np.arange(1000) < 1000 * place, 1.0, factor if rises else 1 / factor)
    settling = settling_of([np.ones(50), noisy(levels, seed)])
    assert not settling.is_settled
    assert settling.change == pytest.approx(factor if rises else 1 / factor, rel=0.05)


@given(seeds)
def test_a_step_between_the_warm_up_and_the_run_is_none(seed: int) -> None:
    assert settling_of([noisy(np.full(200, 5.0), seed), noisy(np.ones(1000), seed)]).is_settled


def test_a_plateau_of_few_calls_is_found_by_those_of_the_warm_up() -> None:
    run = np.array([5.0] * 3 + [1.0] * 13)
    assert settling_of([np.full(10, 5.0), run]).change == pytest.approx(0.2)


def test_a_slow_decay_falls() -> None:
    levels = 1 + 9 * np.exp(-np.arange(1000) / 1000)
    settling = settling_of([levels[:100], noisy(levels[100:])])
    assert settling.change < 0.8
    assert settling.rise == 1


@pytest.mark.parametrize("share", [0.0, 0.01, 0.1])
def test_single_slow_calls_are_no_plateau(share: float) -> None:
    slow = np.random.default_rng(1).random(2000) < share
    assert settling_of([np.ones(50), noisy(np.where(slow, 20.0, 1.0))]).is_settled


def test_runs_that_come_back_are_within_reach_of_both_sides() -> None:
    levels = np.repeat([1.0, 1.2, 1.0], [400, 300, 300])
    settling = settling_of([np.ones(50), noisy(levels, scatter=0.01)])
    assert settling.fall == pytest.approx(1 / 1.2, rel=0.02)
    assert settling.reach.lowest < 1 / 1.2


def test_calls_that_only_waited_for_a_core_say_nothing_of_a_change() -> None:
    waited = np.full(500, np.nan)
    run = noisy(np.ones(500))
    assert settling_of([np.ones(8), np.concatenate([run, waited])]).is_settled
    assert settling_of([waited, np.concatenate([waited, run])]).is_settled
    assert settling_of([np.ones(8), waited]) == SETTLED


def test_a_change_that_goes_on_for_several_runs_reaches_further() -> None:
    assert Settling(0.9, 1.0).reach.lowest == pytest.approx(0.9**4)
    assert Settling(0.9, 1.0, runs=3).reach.lowest == pytest.approx(0.9**12)
    assert Settling(0.9, 1.0).reach.room == pytest.approx(0.9**-4)
    assert SETTLED.reach.room == 1


MIB = 1 << 20
CALLS = np.arange(0, 2400, 100)
IMAGES = {"image": np.zeros((1, 1, 8, 8), np.float32)}


def test_a_leak_is_its_bytes_a_call_although_memory_comes_in_pages() -> None:
    pages = -(-(1000 * CALLS) // 4096) * 4096
    assert slope_of(CALLS, 50 * MIB + pages) == pytest.approx(1000, rel=0.05)


@pytest.mark.parametrize("at", range(1, 24))
def test_a_step_is_no_leak_wherever_it_is(at: int) -> None:
    assert slope_of(CALLS, np.where(np.arange(24) < at, 0, MIB)) == 0


def test_memory_that_warms_up_or_shrinks_does_not_leak() -> None:
    assert slope_of(CALLS, np.minimum(CALLS, 1000) * 4096) == 0
    assert slope_of(CALLS, -CALLS * 4096) == 0


def test_what_a_process_takes_once_is_no_growth() -> None:
    assert growth_between(MIB, MIB + 24576, 10) == 0
    assert growth_between(MIB, MIB + 1_032_768, 1000) == 1000
    assert growth_between(MIB, 0, 1000) == 0


def growth_of(folder: Path, **env: str) -> float:
    """Return the growth of the predictor ``leaky`` in an agent of its own."""
    variables = {f"LEAKY_{name.upper()}": value for name, value in env.items()}
    start = replace(launch(), env={**launch().env, **variables})
    with open_agent(folder, "leaky", start) as predictor:
        predictor.bind([IMAGES])
        return watch_growth(predictor, call_seconds=1e-5, seconds=5.0)


@pytest.mark.parametrize("by", ["python", "c"])
@pytest.mark.parametrize("size", [1000, 10_000])
def test_a_leak_of_a_kilobyte_and_more_is_found(tmp_path: Path, by: str, size: int) -> None:
    assert growth_of(tmp_path, by=by, bytes=str(size)) == pytest.approx(size, rel=0.25)


def test_a_leak_into_memory_that_was_freed_before_is_found(tmp_path: Path) -> None:
    assert growth_of(tmp_path, by="reused", bytes="1000") == pytest.approx(1000, rel=0.25)


@pytest.mark.parametrize(
    ("by", "size"), [("python", 0), ("cycles", 1000), ("steps", 1), ("warm", 4000)]
)
def test_a_clean_process_does_not_grow(tmp_path: Path, by: str, size: int) -> None:
    assert growth_of(tmp_path, by=by, bytes=str(size)) < 100


class Slow:
    """A predictor that counts its calls, and whose memory does not grow."""

    calls = 0

    def turn(self, count: int) -> None:
        self.calls += count

    def usage(self, collect: bool) -> UsageReply:
        return UsageReply(memory=MIB, device_memory=None, threads=1, descriptors=3)


@pytest.mark.parametrize(("call_seconds", "calls"), [(2.0, 6), (0.5, 10), (0.05, 120)])
def test_slow_calls_are_watched_for_few_of_them(call_seconds: float, calls: int) -> None:
    slow = Slow()
    assert watch_growth(cast(Predictor, slow), call_seconds, seconds=5.0) == 0
    assert slow.calls == calls
