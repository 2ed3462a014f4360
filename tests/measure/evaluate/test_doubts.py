"""Tests of decisions that processes can't bear."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_mlms.core.records import Decision, Limit, Place, Verdict
from pytest_mlms.measure.evaluate.doubts import describe_doubts, is_touched, withhold
from pytest_mlms.measure.evaluate.limits import explain, judge
from pytest_mlms.measure.evaluate.process_estimates import estimate_performance
from pytest_mlms.measure.evaluate.process_result import ProcessResult
from pytest_mlms.measure.evaluate.settling import SETTLED, Reach, Settling
from tests.support.processes import process

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
