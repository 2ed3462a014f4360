"""Tests of the comparison of two sides by a task's quantities."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pytest_mlms.core.records import Comparison, Verdict
from pytest_mlms.decide.upgrade.paired_evidence import compare_evidence, compare_figure
from pytest_mlms.measure.evaluate.scoring import UNDEFINED
from tests.support.scored import Means, evidence_of

PASSED = Verdict.PASSED
REGRESSED = Verdict.REGRESSED
INCONCLUSIVE = Verdict.INCONCLUSIVE
GENERATOR = np.random.default_rng(11)
SCORES = GENERATOR.random(600)


def compare(
    before: np.ndarray, after: np.ndarray, name: str = "f1_macro", **tolerances: float
) -> Comparison:
    sides = (Means(before.tolist(), name), Means(after.tolist(), name))
    (found,) = compare_evidence(*sides, tolerances, seed=0)
    return found


def test_equal_sides_pass() -> None:
    found = compare(SCORES, SCORES)
    assert (found.verdict, found.gate, found.of) == (PASSED, False, "inputs")
    assert found.high == 0
    assert found.low == pytest.approx(-(1 - 0.04 ** (1 / 600)))


def test_few_equal_inputs_do_not_show_that_nothing_is_lost() -> None:
    assert compare(SCORES[:300], SCORES[:300]).verdict is INCONCLUSIVE


def test_a_loss_beyond_the_tolerance_regresses() -> None:
    found = compare(SCORES, SCORES - 0.05)
    assert found.verdict is REGRESSED
    assert found.ratio == pytest.approx(-0.05)


def test_the_tolerance_of_the_manifest_makes_a_gate() -> None:
    found = compare(SCORES, SCORES - 0.05, f1_macro=0.1)
    assert (found.verdict, found.gate, found.tolerance) == (PASSED, True, 0.1)


def test_a_change_of_another_unit_is_a_share_of_the_baseline() -> None:
    errors = 40 + SCORES
    found = compare(errors, 1.1 * errors, "rmse", rmse=0.05)
    assert found.ratio == pytest.approx(0.1)
    assert found.verdict is REGRESSED
    assert compare(errors, 0.9 * errors, "rmse", rmse=0.05).verdict is PASSED


def test_without_a_tolerance_these_very_inputs_must_not_be_worse() -> None:
    few = SCORES[:10]
    assert compare(few, few, f1_macro=0.0).verdict is PASSED
    assert compare(few, few + 0.01, f1_macro=0.0).verdict is PASSED
    assert compare(few, few - 0.01, f1_macro=0.0).verdict is REGRESSED


@pytest.mark.parametrize(
    ("before", "after", "name", "lacking"),
    [
        (np.array([math.nan, 1]), np.ones(2), "f1_macro", UNDEFINED),
        (np.ones(1), np.ones(1), "f1_macro", "a comparison needs 2 inputs"),
        (np.zeros(2), np.ones(2), "rmse", "the baseline's value is 0"),
    ],
)
def test_what_can_not_be_compared_is_undecided(
    before: np.ndarray, after: np.ndarray, name: str, lacking: str
) -> None:
    found = compare(before, after, name)
    assert found.verdict is INCONCLUSIVE
    assert lacking in found.lacking


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.02, 0.1, 1.0])
def test_at_the_edge_few_are_regressed_and_few_passed(share: float) -> None:
    tolerance = 0.02
    inputs = 400
    drawn = [GENERATOR.integers(inputs, size=inputs) for _ in range(1000)]
    counts = np.array([np.bincount(sample, minlength=inputs) for sample in drawn], float)
    edge = Comparison("f1_macro", 0.9, 0.9, "fraction", tolerance, False, inputs, "inputs")
    verdicts = []
    for _ in range(400):
        changed = GENERATOR.random(inputs) < share
        losses = changed * GENERATOR.exponential(tolerance / share, size=inputs)
        worse = counts @ losses / inputs
        verdicts.append(compare_figure(edge, np.zeros(1000), -worse).verdict)
    assert verdicts.count(REGRESSED) <= 0.02 * len(verdicts)
    assert verdicts.count(PASSED) <= 0.09 * len(verdicts)


def test_a_figure_that_rounding_alone_changes_has_not_regressed() -> None:
    labels = GENERATOR.random((300, 1)).astype(np.float32)
    exact = evidence_of("regression", labels, labels)
    rounded = evidence_of("regression", labels, labels + np.float32(4.9e-8))
    off = evidence_of("regression", labels, labels + np.float32(1e-3))
    for baseline in (exact, rounded):
        near = {one.quantity: one for one in compare_evidence(baseline, rounded, {}, seed=0)}
        assert near["mae"].verdict is not REGRESSED
        assert not near["mae"].lacking
        far = {one.quantity: one for one in compare_evidence(baseline, off, {}, seed=0)}
        assert far["mae"].verdict is far["rmse"].verdict is REGRESSED


def test_a_quantity_that_the_candidate_lacks_is_undecided_and_says_so() -> None:
    labels = np.array([0, 1] * 20)
    wide = evidence_of("image-classification", labels, np.eye(6)[labels])
    narrow = evidence_of("image-classification", labels, np.eye(3)[labels])
    found = {one.quantity: one for one in compare_evidence(wide, narrow, {"top5": 0.0}, seed=0)}
    assert (found["top5"].verdict, found["top5"].gate) == (INCONCLUSIVE, True)
    assert found["top5"].lacking == "the candidate's outputs have no top5"
