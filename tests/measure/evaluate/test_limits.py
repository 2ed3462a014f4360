"""Tests of limits against intervals, and of the texts that explain the decisions."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_mlms.core.records import Decision, Estimate, Limit, Place, Verdict
from pytest_mlms.measure.evaluate.limits import (
    alike,
    decide,
    explain,
    judge,
    margin,
    summarize,
    worst,
)

PLACE = Place(Path("manifests/digits.yaml"), 44)
AT_MOST = Limit("latency_p90", 0.005, PLACE)
AT_LEAST = Limit("throughput", 200, PLACE)


def estimate(value: float, low: float, high: float, missing: str = "") -> Estimate:
    return Estimate(value, low, high, 0.95, 3, "processes", missing)


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
    middle = (low + high) / 2
    assert decide(limit, estimate(middle, low, high)) is verdict


@pytest.mark.parametrize(
    ("quantity", "limit", "value", "verdict"),
    [
        ("top1", 1.0, 1.0, Verdict.PASSED),
        ("top1", 1.0, 0.9999999, Verdict.FAILED),
        ("wer", 0.0, 0.0, Verdict.PASSED),
        ("wer", 0.0, 0.01, Verdict.FAILED),
        ("wer", 0.0, 1e-16, Verdict.PASSED),
        ("difference_max", 0.0, 0.0, Verdict.PASSED),
        ("difference_max", 0.0, 5e-10, Verdict.FAILED),  # of outputs that may be as small
        ("mae", 0.0, 5e-10, Verdict.FAILED),
    ],
)
def test_a_limit_without_any_error_is_one_on_the_inputs_that_there_are(
    quantity: str, limit: float, value: float, verdict: Verdict
) -> None:
    wide = Estimate(value, value - 0.01, value + 0.01, 0.95, 10_000_000, "inputs")
    assert decide(Limit(quantity, limit, PLACE), wide) is verdict


def test_a_text_has_digits_enough_to_tell_the_value_from_the_limit() -> None:
    below = Estimate(0.99995, 0.9999, 0.99999, 0.95, 20_000, "inputs")
    limit = Limit("top1", 1.0, PLACE)
    text = explain(Decision(limit, below, Verdict.FAILED))
    assert text.startswith("top1 is not at least 100.000 %: measured 99.995 %")
    slower = Estimate(0.0050004, 0.0050003, 0.0050005, 0.95, 6, "processes")
    text = explain(Decision(AT_MOST, slower, Verdict.FAILED))
    assert text.startswith("latency_p90 is not at most 5.0000 ms: measured 5.0004 ms")


ENDS = st.tuples(st.floats(0, 10), st.floats(0, 10)).map(sorted)


@given(ENDS, st.floats(0, 10))
def test_an_upper_limit_has_exactly_one_verdict_on_any_interval(
    ends: list[float], bound: float
) -> None:
    low, high = ends
    expected = Verdict.INCONCLUSIVE
    if high <= bound:
        expected = Verdict.PASSED
    elif low > bound:
        expected = Verdict.FAILED
    limit = Limit("latency_p50", bound, PLACE)
    assert decide(limit, estimate(low, low, high)) is expected


@given(ENDS, st.floats(0, 10))
def test_a_lower_limit_has_exactly_one_verdict_on_any_interval(
    ends: list[float], bound: float
) -> None:
    low, high = ends
    expected = Verdict.INCONCLUSIVE
    if low >= bound:
        expected = Verdict.PASSED
    elif high < bound:
        expected = Verdict.FAILED
    limit = Limit("throughput", bound, PLACE)
    assert decide(limit, estimate(low, low, high)) is expected


def test_too_few_samples_are_inconclusive_however_good_the_value_is() -> None:
    good = estimate(0.001, 0.001, 0.001, "needs 29 calls a process, had 3")
    assert decide(AT_MOST, good) is Verdict.INCONCLUSIVE


def test_a_quantity_that_was_not_measured_is_inconclusive() -> None:
    (decision,) = judge([AT_MOST], {})
    assert decision.verdict is Verdict.INCONCLUSIVE
    assert "it was not measured" in explain(decision)


def test_quantities_without_a_value_for_one_reason_are_one_warning_and_others_have_their_own() -> (
    None
):
    found = {
        "latency_p90": estimate(math.nan, 0, math.inf, "needs 29 calls"),
        "throughput": estimate(math.nan, 0, math.inf, "needs 29 calls"),
        "latency_p50": estimate(0.006, 0.005, 0.007, "needs 29 calls"),
    }
    limits = [Limit(name, 0.005, PLACE) for name in found]
    together, alone = [summarize(group) for group in alike(judge(limits, found))]
    assert together == "latency_p90, throughput: undecided: needs 29 calls"
    assert "latency_p50 is not shown to be at most 5.00 ms: measured 6.00 ms" in alone


def test_the_warning_of_several_limits_names_the_line_of_each_but_the_first() -> None:
    places = [PLACE, PLACE._replace(line=45), Place(Path("other.yaml"), 3), PLACE._replace(line=9)]
    names = ["latency_p90", "latency_p95", "latency_p99", "throughput"]
    limits = [Limit(name, 0.005, place) for name, place in zip(names, places, strict=True)]
    limits[-1] = replace(limits[-1], default=True)
    lacking = dict.fromkeys(names, estimate(math.nan, 0, 1, "needs 29 calls"))
    told = "latency_p90, latency_p95 (line 45), latency_p99 (other.yaml:3), throughput"
    assert summarize(judge(limits, lacking)) == f"{told}: undecided: needs 29 calls"


def test_a_failure_shows_value_interval_limit_and_the_line_that_set_it() -> None:
    (decision,) = judge([AT_MOST], {"latency_p90": estimate(0.0061, 0.0058, 0.0064)})
    first, second = explain(decision).split("\n")
    assert first == (
        "latency_p90 is not at most 5.00 ms: measured 6.10 ms, "
        "interval 5.80 ms to 6.40 ms (95 % confidence, 3 processes)"
    )
    assert second == "  limit set by manifests/digits.yaml:44"


def test_a_value_over_all_inputs_has_no_interval_in_the_text() -> None:
    limit = Limit("deviation", 1.0, PLACE)
    exact = Estimate(2.0, 2.0, 2.0, 1.0, 40, "inputs")
    (decision,) = judge([limit], {"deviation": exact})
    assert "deviation is not at most 1.00: measured 2.00, over 40 inputs" in explain(decision)


def test_an_open_decision_on_performance_advises_a_larger_budget() -> None:
    (decision,) = judge([AT_MOST], {"latency_p90": estimate(0.005, 0.004, 0.006)})
    assert "latency_p90 is not shown to be at most 5.00 ms" in explain(decision)
    assert "raise --mlms-budget or --mlms-duration" in explain(decision)


def test_an_open_decision_on_accuracy_advises_a_larger_dataset() -> None:
    limit = Limit("top1", 0.97, PLACE)
    share = Estimate(0.975, 0.95, 0.98, 0.95, 600, "inputs")
    (decision,) = judge([limit], {"top1": share})
    assert "a larger dataset narrows it" in explain(decision)


def test_an_open_decision_on_a_soak_advises_a_longer_one() -> None:
    drift = Estimate(0.0977, 0.0016, 0.1897, 0.99, 112, "blocks")
    (decision,) = judge(
        [Limit("soak_throughput_drift", 0.1, PLACE)], {"soak_throughput_drift": drift}
    )
    assert "a longer --mlms-soak narrows it" in explain(decision)


def test_the_worst_verdict_is_the_items() -> None:
    assert worst([]) is Verdict.PASSED
    assert worst([Verdict.PASSED, Verdict.INCONCLUSIVE]) is Verdict.INCONCLUSIVE
    assert worst([Verdict.INCONCLUSIVE, Verdict.FAILED, Verdict.PASSED]) is Verdict.FAILED


def test_the_margin_is_that_of_the_interval_nearest_to_its_limit() -> None:
    near = Decision(AT_MOST, estimate(0.004, 0.003, 0.0045), Verdict.PASSED)
    far = Decision(AT_LEAST, estimate(400, 400, 400), Verdict.PASSED)
    assert margin([near, far]) == pytest.approx(0.1)


def test_without_limits_the_margin_is_infinite() -> None:
    assert margin([]) == math.inf


def test_a_margin_outside_of_a_limit_of_0_is_a_finite_number() -> None:
    limit = Limit("kl_max", 0.0, PLACE)
    outside = Decision(limit, estimate(1.0, 1.0, 1.0), Verdict.FAILED)
    assert -math.inf < margin([outside]) < 0


@pytest.mark.parametrize(("low", "high"), [(-0.02, -0.01), (-0.01, 0.01), (0.01, 0.02)])
def test_a_limit_of_0_on_a_drift_is_judged_by_its_interval(low: float, high: float) -> None:
    verdicts = {-0.02: Verdict.PASSED, -0.01: Verdict.INCONCLUSIVE, 0.01: Verdict.FAILED}
    drift = Limit("soak_latency_drift", 0.0, PLACE)
    assert decide(drift, estimate((low + high) / 2, low, high)) is verdicts[low]


def test_a_mean_of_exact_answers_may_miss_100_percent_by_rounding() -> None:
    found = estimate(1 - 2**-52, 0.99, 1.0)
    assert decide(Limit("cosine", 1.0, PLACE), found) is Verdict.PASSED
