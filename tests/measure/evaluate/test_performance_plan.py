"""Plans of performance items, their looks and the risk of these."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pytest_mlms.core.records import Estimate, Limit, Place
from pytest_mlms.measure.evaluate.limits import judge
from pytest_mlms.measure.evaluate.performance_plan import (
    are_clear,
    are_promising,
    confidences,
    needed_room,
)
from tests.support.processes import plan

PLACE = Place(Path("m.yaml"), 1)
LATENCY = Limit("latency_p50", 0.010, PLACE)
THROUGHPUT = Limit("throughput", 100, PLACE)


def estimate(value: float, low: float, high: float) -> Estimate:
    return Estimate(value, low, high, 0.99, 3, "processes")


def is_clear(limit: Limit, low: float, high: float) -> bool:
    found = {limit.quantity: estimate((low + high) / 2, low, high)}
    return are_clear(judge([limit], found), 1.25)


@pytest.mark.parametrize("early", [False, True])
def test_the_risks_of_the_looks_add_up_to_that_of_the_item(early: bool) -> None:
    risks = [1 - confidence for confidence in confidences(early)]
    assert len(risks) == (4 if early else 3)
    assert sum(risks) == pytest.approx(0.05)


def test_the_risk_is_spent_by_the_function_of_lan_and_demets() -> None:
    first = 1 - confidences(early=False)[0]
    assert first == pytest.approx(0.05 * math.log(1 + (math.e - 1) / 4))


def test_a_decision_is_clear_with_a_quarter_between_the_interval_and_the_limit() -> None:
    assert is_clear(LATENCY, 0.006, 0.00799)
    assert not is_clear(LATENCY, 0.006, 0.00801)
    assert is_clear(LATENCY, 0.0126, 0.015)
    assert not is_clear(LATENCY, 0.0124, 0.015)


def test_a_decision_on_a_least_value_is_clear_by_the_same_room() -> None:
    assert is_clear(THROUGHPUT, 126, 200)
    assert not is_clear(THROUGHPUT, 124, 200)
    assert is_clear(THROUGHPUT, 60, 79)
    assert not is_clear(THROUGHPUT, 60, 81)


def test_a_limit_inside_the_interval_is_not_clear() -> None:
    assert not is_clear(LATENCY, 0.001, 0.100)


def test_a_value_that_is_lacking_or_near_a_limit_is_not_promising() -> None:
    far = estimate(0.005, 0, math.inf)
    near = replace(far, value=0.009)
    lacking = replace(far, lacking="calls")
    assert are_promising([LATENCY], {"latency_p50": far}, 1.25)
    assert not are_promising([LATENCY], {"latency_p50": far}, 2.5)
    assert not are_promising([LATENCY], {"latency_p50": near}, 1.25)
    assert not are_promising([LATENCY], {"latency_p50": lacking}, 1.25)
    assert not are_promising([LATENCY], {}, 1.25)


def test_a_level_run_needs_no_room() -> None:
    assert needed_room(np.ones(100)) == 1


@pytest.mark.parametrize("medians", [(1.0, 1.1), (1.1, 1.0)])
def test_a_run_that_changes_needs_room_for_a_change_four_times_as_long(
    medians: tuple[float, float],
) -> None:
    assert needed_room(np.repeat(medians, 50)) == pytest.approx(1.1**4)


def test_a_run_of_one_call_shows_no_change_and_needs_all_room() -> None:
    assert needed_room(np.ones(1)) == math.inf


LIMIT = Limit("latency_p50", 0.010, PLACE)
P99_LIMIT = Limit("latency_p99", 1, PLACE)


def test_a_plan_without_limits_has_looks_of_95_percent() -> None:
    assert plan().confidences == [pytest.approx(0.95)] * 2
    assert not plan(early=3).may_end_early


def test_a_plan_with_limits_shares_its_risk_between_the_looks() -> None:
    confidences = plan(limits=(LIMIT,)).confidences
    assert len(confidences) == 3
    assert sum(1 - confidence for confidence in confidences) == pytest.approx(0.05)


def test_an_early_look_takes_its_risk_from_the_others() -> None:
    early = plan(limits=(LIMIT,), early=3)
    assert early.may_end_early
    risks = [1 - confidence for confidence in [early.early_confidence, *early.confidences]]
    assert sum(risks) == pytest.approx(0.05)
    assert early.confidences[1:] == plan(limits=(LIMIT,)).confidences[1:]


def test_a_short_process_has_the_calls_that_a_full_one_needs_for_its_percentiles() -> None:
    assert plan().least_short(0.001) == 299
    assert plan().least_short(1 / 299) == 299
    assert plan().least_short(0.004) == 59
    assert plan().least_short(1.0) == 16
    assert plan(limits=(P99_LIMIT,)).least_short(1.0) == 299


def test_a_limit_on_a_percentile_raises_the_number_of_calls() -> None:
    assert plan().least == 16
    assert plan(limits=(LIMIT,)).least == 16
    assert plan(limits=(P99_LIMIT,)).least == 299
