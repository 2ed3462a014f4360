"""Limits on latency for each group of inputs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pytest_mlms.core.records import Decision, Limit, Place, Verdict
from pytest_mlms.measure.evaluate.group_latency import judge_groups
from pytest_mlms.measure.evaluate.limits import judge
from pytest_mlms.measure.evaluate.process_estimates import estimate_performance
from pytest_mlms.measure.evaluate.process_result import ProcessResult
from pytest_mlms.measure.evaluate.timed_inputs import Mix, TimedBatches
from tests.support.processes import result_of, scenario_run

MIX = Mix(("16", "512"), (0.75, 0.25))
BATCHES = TimedBatches([{}, {}], [(0,), (1,)], [0, 1], MIX, [0, 0, 0, 1])


def process(short: float, long: float) -> ProcessResult:
    """Return the result of a process of which every fourth input is long."""
    run = scenario_run([short, short, short, long] * 100)
    return replace(result_of(run), batches=BATCHES)


def decide(quantity: str, limit: float, long: float) -> Decision:
    results = [process(0.010 + number * 1e-5, long + number * 1e-5) for number in range(6)]
    limits = [Limit(quantity, limit, Place(Path("m.yaml"), 1))]
    decisions = judge(limits, estimate_performance(results, 0.95))
    (found,) = judge_groups(decisions, results, 0.95)
    return found


@pytest.mark.parametrize(
    ("limit", "verdict"), [(0.05, Verdict.PASSED), (0.03, Verdict.FAILED), (0.005, Verdict.FAILED)]
)
def test_the_worst_group_decides(limit: float, verdict: Verdict) -> None:
    found = decide("latency_p50", limit, long=0.040)
    assert (found.verdict, found.group) == (verdict, "512")
    assert found.estimate.value == pytest.approx(0.040, rel=0.01)
    assert found.estimate.confidence == pytest.approx(0.975)


def test_limits_on_other_quantities_are_on_the_mix() -> None:
    assert decide("peak_memory", 2000, long=0.040).group == ""


def test_a_percentile_that_a_group_has_too_few_calls_for_is_open() -> None:
    found = decide("latency_p99", 0.05, long=0.040)
    assert found.verdict is Verdict.INCONCLUSIVE
    assert "had 100" in found.estimate.lacking
