"""Measurements of a process, and estimates over processes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from mlms_predictors._run.replies import DeviceBytes

from pytest_mlms.core.quantities import quantities_of
from pytest_mlms.core.quantities.quantity import DeviceTime
from pytest_mlms.core.records import Estimate, Limit, Place, Verdict
from pytest_mlms.measure.agent.predictor import Clocks, Predictor, Turn
from pytest_mlms.measure.evaluate.fresh_process import _device_time
from pytest_mlms.measure.evaluate.limits import judge
from pytest_mlms.measure.evaluate.process_result import ProcessResult, estimate_performance
from pytest_mlms.measure.evaluate.timed_inputs import Mix, TimedBatches
from tests.support.processes import process, result_of, scenario_run


def predictor(**told: Any) -> Predictor:
    """Return a predictor on a GPU, each of whose calls takes a millisecond there by plain events."""
    found = {"device": "cuda:0", "clock": True, "events": None, **told}

    def turn(count: int, memory: bool) -> Turn:
        return Turn({"device": np.full(count, 0.001)}, {}, 1, event_times=found["events"])

    made = SimpleNamespace(
        device=found["device"],
        bind=lambda batches, order: Clocks(wait=True, device=found["clock"], stoppable=True),
        turn=turn,
    )
    return cast(Predictor, made)


@pytest.mark.parametrize(
    ("told", "time"),
    [
        ({"events": (0.001, 0.0004)}, DeviceTime(0.0004, "events with a head start")),
        ({"events": (0.001, None)}, DeviceTime(0.001, "events")),
        ({}, DeviceTime(0.001, "events")),
        ({"clock": False}, None),
        ({"device": "cpu"}, None),
    ],
)
def test_launches_are_left_out_where_they_can_have_a_head_start(
    told: dict[str, Any], time: DeviceTime | None
) -> None:
    assert _device_time(predictor(**told), result_of(scenario_run([0.002] * 9))) == time


@pytest.mark.parametrize(("second", "seconds"), [(0, 0.0004), (1, 0.001)])
def test_inputs_of_several_shapes_have_not_the_time_of_the_first(
    second: int, seconds: float
) -> None:
    mix = Mix(("short", "long"), (0.5, 0.5))
    batches = TimedBatches([{}, {}], [(0,), (1,)], [0, second], mix, [0, 1])
    result = replace(result_of(scenario_run([0.002] * 9)), batches=batches)
    found = _device_time(predictor(events=(0.001, 0.0004)), result)
    assert found is not None
    assert found.seconds == seconds


PLACE = Place(Path("m.yaml"), 1)


def estimate(results: Sequence[ProcessResult]) -> dict[str, Estimate]:
    return estimate_performance(results, confidence=0.95)


def test_every_quantity_of_performance_has_an_estimator() -> None:
    quantities = quantities_of("performance")
    names = {quantity.name for quantity in quantities if not quantity.under_load}
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


def test_throughput_is_that_of_a_fixed_amount_of_work() -> None:
    results = [process(0.010), process(0.010), process(0.010), process(0.170)]
    found = estimate(results)
    assert found["throughput"].value == pytest.approx(4 / 0.200)
    assert found["throughput"].value == pytest.approx(1 / found["latency_mean"].value)


def test_a_stalled_process_does_not_make_the_interval_of_throughput_unbounded() -> None:
    limits = [Limit("throughput", bound, PLACE) for bound in (1e-3, 50.0, 1e15)]
    results = [process(0.010), process(0.010), process(0.010), process(0.170)]
    estimates = estimate_performance(results, 0.983)
    verdicts = [decision.verdict for decision in judge(limits, estimates)]
    assert verdicts == [Verdict.PASSED, Verdict.INCONCLUSIVE, Verdict.FAILED]


def test_a_percentile_with_too_few_calls_says_how_many_it_needs() -> None:
    found = estimate([process(0.01, calls=60)] * 3)
    assert found["latency_p95"].lacking == ""
    assert found["latency_p99"].lacking == "needs 299 calls a process, had 60: raise --mlms-budget"


def test_memory_whose_peak_can_not_be_reset_is_not_judged() -> None:
    result = result_of(scenario_run([0.01]), peak_is_since_load=False)
    found = estimate([result] * 3)
    assert "can't reset the peak" in found["peak_memory"].lacking


def test_energy_is_that_of_an_input() -> None:
    results = [result_of(scenario_run([0.01]), joules_per_input=2.0, energy_missing="")] * 3
    assert estimate(results)["energy_per_input"].value == 2.0


def test_energy_without_a_counter_is_missing_and_decides_no_limit() -> None:
    reason = "no RAPL domains in /sys/class/powercap"
    results = [result_of(scenario_run([0.01]), energy_missing=reason)] * 3
    found = estimate(results)["energy_per_input"]
    assert math.isnan(found.value)
    assert found.lacking == reason
    (decision,) = judge([Limit("energy_per_input", 1.0, PLACE)], {"energy_per_input": found})
    assert decision.verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize(("percent", "calls"), [(90, 29), (95, 59), (99, 299)])
def test_a_percentile_at_its_true_value_seldom_passes_with_the_least_calls(
    percent: int, calls: int
) -> None:
    generator = np.random.default_rng(percent)
    truth = -np.log(1 - percent / 100)  # of an exponential distribution
    limit = Limit(f"latency_p{percent}", truth, PLACE)
    passed = 0
    for _ in range(400):
        results = [
            result_of(scenario_run(generator.exponential(size=calls).tolist())) for _ in range(3)
        ]
        decision = judge([limit], estimate(results))[0]
        passed += decision.verdict is Verdict.PASSED
    assert passed <= 0.025 * 400  # without the interval of order statistics: 8 % and more


def test_processes_that_differ_do_not_widen_the_interval_of_a_percentile_by_their_calls() -> None:
    results = [process(0.010) for _ in range(11)] + [process(0.021)]
    found = estimate(results)
    assert found["latency_p95"].high == pytest.approx(found["latency_p50"].high)


def test_growth_of_memory_is_that_of_each_process_and_missing_under_load() -> None:
    run = scenario_run([0.001] * 100)
    leaking = [result_of(run, memory_growth=growth) for growth in (990.0, 1010.0)]
    found = estimate(leaking)["memory_growth"]
    assert (found.value, found.lacking) == (1000, "")
    assert found.low < 990 < 1010 < found.high
    under_load = estimate([process(0.001), *leaking])["memory_growth"]
    assert "it is not measured under load" in under_load.lacking


def with_memory(*found: DeviceBytes | None) -> Estimate:
    results = [result_of(scenario_run([0.01]), device_memory=each) for each in found]
    return estimate(results)["device_memory"]


def test_memory_of_a_gpu_is_that_of_the_frameworks_counter_which_is_named() -> None:
    found = with_memory(*[DeviceBytes({"pool": value, "NVML": 900}) for value in (100, 102)])
    assert (found.value, found.counter, found.lacking) == (101, "pool", "")


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (DeviceBytes({}, "NVML: Not Supported"), "NVML: Not Supported"),
        (None, "it was not measured"),
        (DeviceBytes({"NVML": 900}), "counters of different meaning: NVML, pool"),
    ],
)
def test_memory_of_a_gpu_that_a_process_does_not_tell_or_tells_otherwise_decides_nothing(
    other: DeviceBytes | None, reason: str
) -> None:
    found = with_memory(DeviceBytes({"pool": 100}), other)
    assert math.isnan(found.value)
    assert reason in found.lacking
    (decision,) = judge([Limit("device_memory", 1.0, PLACE)], {"device_memory": found})
    assert decision.verdict is Verdict.INCONCLUSIVE
