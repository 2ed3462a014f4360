"""Doubts about processes that have not settled, or of which one stands apart."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_mlms.core.records import Decision, Limit, Place, Verdict
from pytest_mlms.measure.evaluate.doubts import (
    ProcessKinds,
    describe_doubts,
    find_kinds,
    is_touched,
    withhold,
)
from pytest_mlms.measure.evaluate.limits import explain, judge
from pytest_mlms.measure.evaluate.process_result import ProcessResult, estimate_performance
from pytest_mlms.measure.evaluate.steadiness import SETTLED, Reach, Settling
from tests.support.processes import process

ALIKE = [1.00, 1.01, 0.995, 1.004, 0.99, 1.0]


@pytest.mark.parametrize("count", [3, 6])
def test_processes_that_agree_are_of_one_kind(count: int) -> None:
    assert find_kinds(ALIKE[:count]) is None


@pytest.mark.parametrize(
    ("values", "text"),
    [
        (
            [1.0, 1.0, 2.1],
            "1 of 3 processes stands apart (it has 2.1 times the value of the others)",
        ),
        ([0.5, 1.0, 1.0], "1 of 3 processes stands apart (the others have 2 times its value)"),
        (
            [0.8, 1.2, 0.81, 1.2, 1.2, 0.8],
            "3 of 6 processes have 1.49 times the value of the others",
        ),
        ([1.0, 1.5, 2.0], "no two of 3 processes agree (the largest is 2 times the least)"),
    ],
)
def test_processes_that_do_not_agree_are_described(values: list[float], text: str) -> None:
    assert str(find_kinds(values)) == text


@pytest.mark.parametrize("values", [[1.0], [1.0, 2.0], [0.0, 1.0, 2.0]])
def test_two_processes_and_values_of_zero_show_nothing(values: list[float]) -> None:
    assert find_kinds(values) is None


def test_kinds_that_differ_by_less_than_their_error_are_one() -> None:
    assert find_kinds([1.0, 1.0, 1.2], error=0.1) is None


@given(st.permutations([1.0, 1.01, 2.0, 2.02, 1.0]), st.floats(1e-9, 1e9))
def test_neither_the_order_nor_the_unit_matters(values: list[float], unit: float) -> None:
    found = find_kinds([unit * value for value in values])
    assert found is not None
    assert found.larger == 2
    assert found.ratio == pytest.approx(2, rel=0.02)


@pytest.mark.parametrize("count", [3, 6, 12])
def test_processes_that_differ_by_little_are_seldom_of_two_kinds(count: int) -> None:
    generator = np.random.default_rng(0)
    found = 0
    for _ in range(500):
        values = np.exp(0.03 * generator.normal(size=count))
        found += find_kinds(values.tolist()) is not None
    assert found <= 0.02 * 500


def test_kinds_are_a_record() -> None:
    assert find_kinds([1.0, 1.0, 3.0]) == ProcessKinds(1, 3, math.exp(math.log(3)))


PLACE = Place(Path("m.yaml"), 1)
FALLING = Settling(0.9, 1.0)
RISING = Settling(1.0, 1.1)


def results(count: int = 6, settling: Settling = SETTLED) -> list[ProcessResult]:
    return [replace(process(0.010 + 1e-6 * number), settling=settling) for number in range(count)]


def decide(limit: Limit, results: Sequence[ProcessResult]) -> Decision:
    decisions = judge([limit], estimate_performance(results, 0.99))
    (decision,) = withhold(decisions, results)
    return decision


def p50(value: float) -> Limit:
    return Limit("latency_p50", value, PLACE)


def throughput(value: float) -> Limit:
    return Limit("throughput", value, PLACE)


@pytest.mark.parametrize("value", [0.009, 0.011])
def test_six_processes_that_settled_decide(value: float) -> None:
    decision = decide(p50(value), results())
    assert decision.verdict in (Verdict.PASSED, Verdict.FAILED)
    assert decision.reason == ""


@pytest.mark.parametrize(
    ("limit", "settling", "verdict"),
    [
        (p50(0.0075), FALLING, Verdict.INCONCLUSIVE),
        (p50(0.005), FALLING, Verdict.FAILED),
        (p50(0.011), FALLING, Verdict.PASSED),
        (p50(0.011), RISING, Verdict.INCONCLUSIVE),
        (p50(0.020), RISING, Verdict.PASSED),
        (p50(0.009), RISING, Verdict.FAILED),
        (throughput(120), FALLING, Verdict.INCONCLUSIVE),
        (throughput(200), FALLING, Verdict.FAILED),
        (throughput(90), FALLING, Verdict.PASSED),
        (throughput(90), RISING, Verdict.INCONCLUSIVE),
        (Limit("load_time", 0.21, PLACE), RISING, Verdict.PASSED),
    ],
)
def test_a_limit_within_reach_of_a_change_is_not_decided(
    limit: Limit, settling: Settling, verdict: Verdict
) -> None:
    assert decide(limit, results(settling=settling)).verdict is verdict


def test_a_change_says_how_large_it_is_and_what_helps() -> None:
    mixed = [*results(2, FALLING), *results(4)]
    assert explain(decide(p50(0.0098), mixed)).endswith(
        "undecided: 2 of 6 processes still got faster while they were timed, by up to 11 %; "
        "raise --mlms-duration, so that they settle"
    )


@pytest.mark.parametrize(("value", "is_close"), [(0.0129, True), (0.0131, False), (0.0078, True)])
def test_three_processes_do_not_decide_on_a_limit_that_is_close(
    value: float, is_close: bool
) -> None:
    decision = decide(p50(value), results(3))
    assert (decision.verdict is Verdict.INCONCLUSIVE) == is_close


def test_an_interval_that_two_kinds_of_processes_widen_says_so() -> None:
    decision = decide(p50(0.012), [process(seconds) for seconds in [0.010] * 5 + [0.021]])
    assert decision.verdict is Verdict.INCONCLUSIVE
    assert decision.reason.startswith(
        "1 of 6 processes stands apart (it has 2.1 times the value of the others); find what"
    )


def test_an_interval_of_processes_that_differ_by_little_has_no_other_reason() -> None:
    decision = decide(p50(0.0100025), results())
    assert decision.verdict is Verdict.INCONCLUSIVE
    assert decision.reason == ""


def test_what_does_not_change_touches_no_limit() -> None:
    assert not is_touched(p50(0.0100001), 0.010, 0.010, Reach(1.0, 1.0))


def test_doubts_are_about_changes_and_else_about_kinds() -> None:
    assert describe_doubts(results()) == ""
    kinds = [process(seconds) for seconds in (0.010, 0.010, 0.020)]
    assert describe_doubts(kinds).startswith("latency_p50: 1 of 3 processes stands apart")
    changes = [replace(result, settling=RISING) for result in kinds]
    assert describe_doubts(changes) == (
        "3 of 3 processes still got slower while they were timed, by up to 10 %"
    )
