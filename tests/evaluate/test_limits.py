from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_mlms.evaluate.limits import decide, explain, judge, margin, worst
from pytest_mlms.records import Decision, Estimate, Limit, Place, Verdict

PLACE = Place(Path("manifests/digits.yaml"), 44)


def latency(value: float, low: float, high: float, lacking: str = "") -> Estimate:
    return Estimate(value, low, high, 0.95, 3, "processes", lacking)


AT_MOST = Limit("latency_p90", 0.005, PLACE)
AT_LEAST = Limit("throughput", 200, PLACE)


@pytest.mark.parametrize(
    ("limit", "low", "high", "verdict"),
    [
        (AT_MOST, 0.003, 0.004, Verdict.PASSED),
        (AT_MOST, 0.003, 0.005, Verdict.PASSED),
        (AT_MOST, 0.004, 0.006, Verdict.INCONCLUSIVE),
        (AT_MOST, 0.005, 0.006, Verdict.INCONCLUSIVE),
        (AT_MOST, 0.0051, 0.006, Verdict.FAILED),
        (AT_LEAST, 200, 300, Verdict.PASSED),
        (AT_LEAST, 199, 300, Verdict.INCONCLUSIVE),
        (AT_LEAST, 100, 199, Verdict.FAILED),
        (AT_LEAST, 0, math.inf, Verdict.INCONCLUSIVE),
    ],
)
def test_the_interval_decides_not_the_value(
    limit: Limit, low: float, high: float, verdict: Verdict
) -> None:
    assert decide(limit, latency((low + high) / 2, low, high)) is verdict


@given(st.floats(0, 10), st.floats(0, 10), st.floats(0, 10), st.booleans())
def test_exactly_one_verdict_holds_for_any_interval(
    a: float, b: float, bound: float, at_most: bool
) -> None:
    low, high = sorted((a, b))
    verdict = decide(
        Limit("latency_p50" if at_most else "throughput", bound, PLACE), latency(low, low, high)
    )
    inside, outside = (high <= bound, low > bound) if at_most else (low >= bound, high < bound)
    assert verdict is (
        Verdict.PASSED if inside else Verdict.FAILED if outside else Verdict.INCONCLUSIVE
    )


def test_what_lacks_samples_is_inconclusive_however_good_it_looks() -> None:
    assert (
        decide(AT_MOST, latency(0.001, 0.001, 0.001, "needs 29 calls a process, had 3"))
        is Verdict.INCONCLUSIVE
    )


def test_what_was_not_measured_is_inconclusive_never_passed() -> None:
    (decision,) = judge([AT_MOST], {})
    assert decision.verdict is Verdict.INCONCLUSIVE
    assert "it was not measured" in explain(decision)


def test_a_failure_shows_value_interval_limit_and_the_line_that_set_it() -> None:
    (decision,) = judge([AT_MOST], {"latency_p90": latency(0.0061, 0.0058, 0.0064)})
    assert explain(decision) == (
        "latency_p90 is not at most 5.00 ms: measured 6.10 ms, interval 5.80 ms to 6.40 ms (95 % confidence, 3 processes)\n"
        "  limit set by manifests/digits.yaml:44"
    )


def test_an_open_decision_says_what_would_help() -> None:
    (speed,) = judge([AT_MOST], {"latency_p90": latency(0.005, 0.004, 0.006)})
    assert "raise --mlms-budget or --mlms-duration" in explain(speed)
    limit = Limit("top1", 0.97, PLACE)
    (share,) = judge([limit], {"top1": Estimate(0.975, 0.95, 0.98, 0.95, 600, "inputs")})
    assert "a larger dataset narrows it" in explain(share)


def test_the_worst_verdict_is_the_items() -> None:
    assert worst([]) is Verdict.PASSED
    assert worst([Verdict.PASSED, Verdict.INCONCLUSIVE]) is Verdict.INCONCLUSIVE
    assert worst([Verdict.INCONCLUSIVE, Verdict.FAILED, Verdict.PASSED]) is Verdict.FAILED


def test_the_margin_is_that_of_the_interval_nearest_to_its_limit() -> None:
    near = Decision(AT_MOST, latency(0.004, 0.003, 0.0045), Verdict.PASSED)
    far = Decision(AT_LEAST, latency(400, 400, 400), Verdict.PASSED)
    assert margin([near, far]) == pytest.approx(0.1)
    assert margin([]) == math.inf
