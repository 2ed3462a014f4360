"""Tests of the plan of a performance item."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_mlms.core.records import Limit, Place
from tests.support.processes import plan

PLACE = Place(Path("m.yaml"), 1)
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
