"""Comparison of the outputs and the accuracy of both sides of an upgrade."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_mlms.errors import InvalidRun, OutputError
from pytest_mlms.evaluate.agreement import Tolerance
from pytest_mlms.evaluate.tasks.classification import ClassificationEvidence
from pytest_mlms.evaluate.tasks.task import Evidence
from pytest_mlms.records import Comparison, Verdict
from pytest_mlms.upgrade.output_check import OutputCheck, check_outputs
from pytest_mlms.upgrade.rounds import Outputs, SideName
from tests.support.fake_agents import FakePair, FakePredictor
from tests.support.scored import dataset_of
from tests.support.upgrade_case import case_of
from tests.support.upgrades import find

PASSED = Verdict.PASSED
REGRESSED = Verdict.REGRESSED
EXPECTED = {"y": np.array([1.0, -100.0])}


def y(*values: float) -> dict[str, Any]:
    return {"y": np.array(values)}


def test_differences_up_to_one_percent_of_the_largest_value_are_rounding() -> None:
    rounding = check_outputs(EXPECTED, y(1.9, -100.0))
    assert rounding.verdict is PASSED
    assert rounding.ratio == pytest.approx(0.9)
    more = check_outputs(EXPECTED, y(2.1, -100.0))
    assert more.verdict is REGRESSED


def test_the_tolerance_of_the_manifest_is_relative_and_absolute() -> None:
    tolerance = Tolerance(rtol=0.1, atol=0.0)
    near = check_outputs(EXPECTED, y(1.0, -109.0), tolerance)
    assert near.verdict is PASSED
    far = check_outputs(EXPECTED, y(1.9, -100.0), tolerance)
    assert far.verdict is REGRESSED
    assert far.tolerance == 0.1
    assert far.ratio == pytest.approx(9)


@pytest.mark.parametrize(
    ("actual", "reason"),
    [
        ({}, "'y' is absent, and (2,) of the baseline"),
        (y(1.0), "'y' is (1,), and (2,) of the baseline"),
        (y(1.0, math.nan), "'y' has NaN or infinity"),
        (y(1.0, math.inf), "'y' has NaN or infinity"),
    ],
)
def test_outputs_that_cannot_be_compared_are_wrong(actual: Outputs, reason: str) -> None:
    found = check_outputs(EXPECTED, actual)
    assert found.verdict is REGRESSED
    assert found.lacking == reason


def test_the_worst_of_several_outputs_decides() -> None:
    ones = np.ones(2)
    expected = {"x": ones, "y": ones}
    actual = {"x": ones, "y": 1.005 * ones}
    found = check_outputs(expected, actual)
    assert found.ratio == pytest.approx(0.5)
    assert found.replicates == 2


def test_agreement_is_a_gate_of_outputs() -> None:
    found = check_outputs(EXPECTED, EXPECTED)
    assert (found.quantity, found.of, found.gate) == ("agreement", "outputs", True)


LABELS = np.array([0, 1] * 300)
RIGHT = np.eye(2, dtype=np.float32)[LABELS]
WRONG = RIGHT[:, ::-1]
LOGITS = {"logits": np.ones((2, 10))}
DATASET = dataset_of(LABELS)
TIMED: Mapping[SideName, Outputs] = {"a": LOGITS, "b": LOGITS}


class Check:
    """An output check of the digits, whose scores are made up by side."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.fakes = FakePair()
        self.pair = self.fakes.pair()
        self.by_side: dict[int, Any] = {101: RIGHT, 102: RIGHT}
        self.classified: list[int] = []
        self.known: dict[Any, Evidence] = {}
        self.case = case_of(folder)
        monkeypatch.setattr("pytest_mlms.upgrade.output_check.score_case", self.score)

    def score(self, case: object, predictor: FakePredictor, *_: object) -> ClassificationEvidence:
        pid = predictor.agent.pid
        self.classified.append(pid)
        scores = self.by_side[pid]
        if isinstance(scores, Exception):
            raise scores
        output = self.case.loaded.manifest.scored_outputs[0]
        names = [str(number) for number in range(scores.shape[1])]
        return ClassificationEvidence(scores, LABELS, output, names)

    def run(
        self,
        timed: Mapping[SideName, Outputs] = TIMED,
        labelled: bool = True,
        **tolerances: float,
    ) -> list[Comparison]:
        dataset = DATASET if labelled else None
        check = OutputCheck(self.case, dataset, {}, tolerances, self.known)
        found = check(self.pair, timed)
        self.worse_inputs = list(found.worse_inputs)
        return list(found.comparisons)


def quantities(comparisons: list[Comparison]) -> list[str]:
    return [compared.quantity for compared in comparisons]


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Check:
    return Check(tmp_path, monkeypatch)


def test_equal_outputs_and_scores_pass(check: Check) -> None:
    found = check.run()
    assert quantities(found) == ["agreement", "top1", "f1_macro"]
    assert {compared.verdict for compared in found} == {PASSED}


def test_a_candidate_that_loses_answers_regresses_in_accuracy(check: Check) -> None:
    check.by_side[102] = WRONG
    top1 = find(check.run(), "top1")
    assert top1.verdict is REGRESSED
    assert (top1.a, top1.b) == (1.0, 0.0)
    assert top1.ratio == -1.0
    assert check.worse_inputs[1].startswith("row 1: label 1, class_1 1 -> 0, probability_1 0.7")


def test_accuracy_is_a_gate_where_the_manifest_names_it(check: Check) -> None:
    assert not find(check.run(), "top1").gate
    assert find(check.run(), "top1").tolerance == 0.01
    named = find(check.run(top1=0.2), "top1")
    assert (named.gate, named.tolerance) == (True, 0.2)


def test_more_than_five_classes_have_a_top_5(check: Check) -> None:
    wide = np.zeros((600, 6), np.float32)
    check.by_side = {101: wide, 102: wide}
    assert quantities(check.run()) == ["agreement", "top1", "top5", "f1_macro"]


OTHER_LOGITS: Mapping[SideName, Outputs] = {"a": LOGITS, "b": {"logits": np.zeros((2, 10))}}


def test_accuracy_says_how_wrong_other_outputs_are(check: Check) -> None:
    check.by_side[102] = WRONG
    agreement, top1, _ = check.run(OTHER_LOGITS)
    assert (agreement.verdict, top1.verdict) == (REGRESSED, REGRESSED)
    assert (top1.a, top1.b) == (1.0, 0.0)
    assert check.worse_inputs[0].startswith("row 0: label 0, class_1 0 -> 1")


def test_other_outputs_that_are_as_accurate_have_regressed_all_the_same(check: Check) -> None:
    agreement, *accuracy = check.run(OTHER_LOGITS)
    assert agreement.verdict is REGRESSED
    assert {compared.verdict for compared in accuracy} == {PASSED}
    assert check.worse_inputs == []


def test_inputs_that_got_worse_are_named_where_outputs_disagree(check: Check) -> None:
    one_wrong = RIGHT.copy()
    one_wrong[3] = WRONG[3]
    check.by_side[102] = one_wrong
    _, top1, _ = check.run(OTHER_LOGITS)
    assert top1.verdict is not REGRESSED
    (line,) = check.worse_inputs
    assert line.startswith("row 3: label 1, class_1 1 -> 0")


@pytest.mark.parametrize("side", [101, 102])
def test_other_outputs_without_accuracy_have_regressed_and_say_why(check: Check, side: int) -> None:
    check.by_side[side] = OutputError("NaN for 3 inputs")
    (agreement,) = check.run(OTHER_LOGITS)
    assert agreement.verdict is REGRESSED
    assert agreement.ratio == pytest.approx(100)
    assert agreement.lacking.endswith("NaN for 3 inputs")


def test_without_a_dataset_only_the_timed_outputs_are_compared(check: Check) -> None:
    assert quantities(check.run(labelled=False)) == ["agreement"]


def test_scores_of_a_side_are_computed_once_a_session(check: Check) -> None:
    check.run()
    check.run()
    assert check.classified == [101, 102]


def test_a_baseline_that_is_not_finite_is_invalid(check: Check) -> None:
    nan = {"logits": np.full((2, 10), math.nan)}
    message = "the baseline's output 'logits' has NaN or infinity; there is nothing to compare with"
    with pytest.raises(InvalidRun, match=message):
        check.run({"a": nan, "b": LOGITS})


def test_a_baseline_whose_scores_cannot_be_used_is_invalid(check: Check) -> None:
    check.by_side[101] = OutputError("NaN for 3 inputs")
    message = "the baseline's outputs can't be used: baseline old: NaN for 3 inputs"
    with pytest.raises(InvalidRun, match=message):
        check.run()


def test_a_candidate_whose_scores_cannot_be_used_is_wrong(check: Check) -> None:
    check.by_side[102] = OutputError("NaN for 3 inputs")
    (agreement,) = check.run()
    assert agreement.verdict is REGRESSED
    assert agreement.lacking == "candidate new: NaN for 3 inputs"
