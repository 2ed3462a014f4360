"""The replay compares outputs as the gate does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pytest_mlms.core.statistics import student_quantile
from pytest_mlms.decide.upgrade.output_check import check_outputs
from pytest_mlms.decide.upgrade.round_estimate import ROUNDS, estimate_change
from pytest_mlms.explain.repro.replay.compare import ROUNDING_SHARE, largest_difference
from pytest_mlms.explain.repro.replay.environments import THREAD_VARIABLES
from pytest_mlms.explain.repro.replay.intervals import (
    LEAST_ROUNDS,
    MOST_ROUNDS,
    ROUNDS_TO_FAIL,
    TO_FAIL,
    TO_PASS,
    change_of,
)
from pytest_mlms.explain.repro.replay.rounds import shown
from pytest_mlms.measure.evaluate.closeness import Rule, Tolerance, differences, rounding_share
from pytest_mlms.provide.stacks.launch import THREAD_VARIABLES as OURS

GENERATOR = np.random.default_rng(3)
CLOSENESS: dict[str, Any] = {"rtol": 0.0, "atol": None, "rules": {}}


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "float64"])
def test_the_deviation_is_that_of_an_upgrade(dtype: str) -> None:
    reference = (100 * GENERATOR.normal(size=(4, 3, 5))).astype(dtype)
    ours = reference + np.array(GENERATOR.normal(size=(4, 3, 5)) * 3).astype(dtype)
    found = largest_difference({"y": ours}, {"y": reference}, CLOSENESS)
    compared = check_outputs({"y": reference}, {"y": ours})
    assert found["deviation"] == pytest.approx(compared.ratio)


def test_a_tolerance_is_that_of_an_agreement() -> None:
    reference = GENERATOR.normal(size=(4, 5))
    ours = reference + 0.01
    found = largest_difference(
        {"y": ours}, {"y": reference}, {**CLOSENESS, "rtol": 0.01, "atol": 0.001}
    )
    expected = differences(ours, reference, Tolerance(0.01, 0.001)).deviation
    assert found["deviation"] == pytest.approx(expected.max())
    assert expected[tuple(found["place"])] == expected.max()


@pytest.mark.parametrize("dtype", ["float32", "int64", "complex64"])
def test_outputs_without_an_axis_are_compared(dtype: str) -> None:
    reference, ours = np.array(2).astype(dtype), np.array(3).astype(dtype)
    found = largest_difference({"y": ours}, {"y": reference}, CLOSENESS)
    assert found["deviation"] > 1
    assert (found["ours"], found["reference"]) == (3, 2)
    assert largest_difference({"y": reference}, {"y": reference}, CLOSENESS)["deviation"] == 0


@pytest.mark.parametrize(
    ("ours", "reference"),
    [
        (np.array([[2**53, 2**53 + 1]]), np.array([[2**53, 2**53]])),
        (np.array([["cat", "cow"]]), np.array([["cat", "dog"]])),
        (np.array([True, False]), np.array([True, True])),
    ],
)
def test_large_numbers_and_texts_differ_as_for_the_gate(ours: Any, reference: Any) -> None:
    """Numbers that are alike as float64 agreed, and texts were a traceback."""
    found = largest_difference({"y": ours}, {"y": reference}, CLOSENESS)
    expected = differences(ours, reference, Tolerance(0.0, 0.0)).deviation
    assert found["deviation"] == expected.max() == np.inf
    assert (found["place"][-1], found["elements"]) == (1, 1)
    assert largest_difference({"y": reference}, {"y": reference}, CLOSENESS)["deviation"] == 0


def test_shapes_that_differ_are_told() -> None:
    found = largest_difference({"y": np.ones(3)}, {"y": np.ones(4)}, CLOSENESS)
    assert found["problem"] == "'y' is (3,), and (4,) of the other side"


def test_types_that_differ_are_told() -> None:
    reference = np.ones(3, np.float32)
    found = largest_difference({"y": np.ones(3)}, {"y": reference}, CLOSENESS)
    assert found["problem"] == "'y' is float64, and float32 of the other side"
    assert found["deviation"] == np.inf


def test_nan_of_the_side_that_is_fine_is_no_measure() -> None:
    reference = np.array([[1.0, np.nan], [2.0, 3.0]], np.float32)
    same = largest_difference({"y": reference}, {"y": reference}, CLOSENESS)
    assert same["deviation"] == 0
    lost = np.array([[np.nan, np.nan], [2.0, 3.0]], np.float32)
    assert largest_difference({"y": lost}, {"y": reference}, CLOSENESS)["deviation"] == np.inf


@pytest.mark.parametrize("rule", [Rule(unlike=-1), Rule(unlike=-2), Rule(share=0.01)])
def test_values_are_like_those_that_the_gate_takes_for_like(rule: Rule) -> None:
    boxes = GENERATOR.uniform(0, 640, (2, 5, 4))
    reference = np.concatenate([boxes, GENERATOR.uniform(0, 1, (2, 5, 4))], 2)
    ours = reference + np.array([0] * 4 + [0.05] * 4)  # wrong scores beside boxes in pixels
    closeness = {**CLOSENESS, "rules": {"y": {"unlike": rule.unlike, "share": rule.share or 0.0}}}
    found = largest_difference({"y": ours}, {"y": reference}, closeness)
    assert found["deviation"] == pytest.approx(rule.compare(ours, reference).largest)


def test_an_output_that_the_item_does_not_name_is_not_compared() -> None:
    ours = {"y": np.ones(3), "drawn": np.zeros(3)}
    reference = {"y": np.ones(3), "drawn": np.ones(3)}
    assert largest_difference(ours, reference, CLOSENESS)["deviation"] > 1
    found = largest_difference(ours, reference, {**CLOSENESS, "rules": {"y": {}}})
    assert found["deviation"] == 0


def test_the_rule_over_rounds_is_that_of_the_gate() -> None:
    assert (
        ROUNDS.least,
        ROUNDS.to_fail,
        ROUNDS.most,
    ) == (LEAST_ROUNDS, ROUNDS_TO_FAIL, MOST_ROUNDS)
    risks = {TO_FAIL: ROUNDS.risk_of_failing, TO_PASS: ROUNDS.risk_of_passing}
    for quantiles, risk in risks.items():
        exact = [student_quantile(freedom, 1 - risk) for freedom in range(1, MOST_ROUNDS)]
        assert quantiles == pytest.approx(exact, rel=1e-3)


@pytest.mark.parametrize("count", [1, 5, 6, 7, 8, 9])
@pytest.mark.parametrize("shift", [0.0, 0.03, 0.06])
def test_rounds_are_decided_as_the_gate_decides_them(count: int, shift: float) -> None:
    changes = list(shift + GENERATOR.normal(size=count) / 200)
    found = change_of(changes, 0.03)
    expected = estimate_change(changes, ROUNDS)
    if count > 1:
        assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=1e-5)
    assert found.is_worse == (count >= ROUNDS.to_fail and expected.low > 0.03)
    assert found.is_fine == (count >= ROUNDS.least and expected.high < 0.03)


def test_the_rounding_and_the_threads_are_those_of_agents() -> None:
    assert rounding_share(np.dtype("float32")) == ROUNDING_SHARE
    assert THREAD_VARIABLES == OURS


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (5.178e-5, "s", "51.78 µs"),
        (0.25, "s", "250 ms"),
        (3 << 20, "B", "3 MiB"),
        (12.5, "/s", "12.5 /s"),
        (0.0, "s", "0 µs"),
    ],
)
def test_values_are_shown_with_their_unit(value: float, unit: str, text: str) -> None:
    assert shown(value, unit) == text
