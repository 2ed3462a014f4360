"""Tests of quantities of users' own tests, and of limits on them."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_mlms.core.records import OwnScale, Place, Verdict
from pytest_mlms.core.serialization import to_plain
from pytest_mlms.keep.results.line import OwnQuantity
from pytest_mlms.keep.results.own_quantities import decide_own, estimate_own, place_of
from pytest_mlms.measure.evaluate.limits import explain, margin

PLACE = Place(Path("test_own.py"), 7)
LOWER = OwnScale("m", "lower")
HIGHER = OwnScale("", "higher")


@pytest.mark.parametrize("value", [0.5, 1, np.float32(0.5), np.array(0.5), "0.5", True])
def test_a_single_value_is_judged_as_it_is(value: Any) -> None:
    estimate = estimate_own("rmse", value, "m", "lower")
    assert estimate.low == estimate.value == estimate.high == float(value)
    assert to_plain(OwnQuantity.of(estimate, "m", "lower")) == {
        "value": float(value),
        "unit": "m",
        "better": "lower",
    }


@pytest.mark.parametrize("values", [[1, 2, 3], (1.0, 2.0, 3.0), np.array([1, 2, 3]), range(1, 4)])
def test_several_values_are_their_mean_with_students_interval(values: Any) -> None:
    estimate = estimate_own("rmse", values, "m", "lower")
    assert estimate.value == 2
    assert estimate.high - 2 == pytest.approx(4.302653 / math.sqrt(3))
    assert estimate.low == pytest.approx(4 - estimate.high)
    assert estimate.replicates == 3


def test_the_interval_of_negative_values_has_both_ends() -> None:
    estimate = estimate_own("log_likelihood", [-3, -2, -1], "", "higher")
    assert estimate.low < -3
    assert estimate.high > -1


def test_a_list_of_one_value_is_undecided() -> None:
    estimate = estimate_own("rmse", [0.5], "m", "lower")
    decision = decide_own("rmse", 1, estimate, LOWER, PLACE)
    assert decision.verdict is Verdict.INCONCLUSIVE
    assert "a single value has no interval; give more values" in explain(decision)
    assert to_plain(OwnQuantity.of(estimate, "m", "lower"))["high"] is None


@pytest.mark.parametrize(
    ("value", "limit", "scale", "verdict"),
    [
        (1.0, 1.0, LOWER, Verdict.PASSED),
        (1.1, 1.0, LOWER, Verdict.FAILED),
        (1.0, 1.0, HIGHER, Verdict.PASSED),
        (-2.0, -1.0, HIGHER, Verdict.FAILED),
        ([1.0, 2.0, 3.0], 2.1, LOWER, Verdict.INCONCLUSIVE),
    ],
)
def test_a_limit_bounds_the_side_that_is_worse(
    value: Any, limit: float, scale: OwnScale, verdict: Verdict
) -> None:
    estimate = estimate_own("q", value, scale.unit, scale.better)
    assert decide_own("q", limit, estimate, scale, PLACE).verdict is verdict


def test_the_margin_of_a_negative_limit_is_negative_outside() -> None:
    estimate = estimate_own("q", -2.0, "", "higher")
    assert margin([decide_own("q", -1.0, estimate, HIGHER, PLACE)]) == -1


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([], "rmse has no values; give one or more"),
        ([1.0, math.nan], "rmse is nan; a quantity is a finite number"),
        ([1e308, 1e308, 1e308], "rmse is inf; a quantity is a finite number"),
    ],
)
def test_values_that_have_no_mean_are_refused(values: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        estimate_own("rmse", values, "m", "lower")


@pytest.mark.parametrize(
    ("limit", "message"),
    [
        ("5 ms", "the limit on rmse is '5 ms'; write a number, in m"),
        (math.inf, "the limit on rmse is inf; a quantity is a finite number"),
    ],
)
def test_a_limit_is_a_finite_number(limit: Any, message: str) -> None:
    estimate = estimate_own("rmse", 1.0, "m", "lower")
    with pytest.raises(ValueError, match=message):
        decide_own("rmse", limit, estimate, LOWER, PLACE)


def test_a_place_is_below_the_folder_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    here = Path(__file__)
    monkeypatch.chdir(here.parent)
    place = place_of(sys._getframe())
    assert place.path == Path(here.name)
    monkeypatch.chdir("/")
    assert (place_of(sys._getframe()).path).name == here.name
