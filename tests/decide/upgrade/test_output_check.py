"""Comparison of the outputs and the accuracy of both sides of an upgrade."""

from __future__ import annotations

import contextlib
import io
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from mlms_predictors import Tensor
from mlms_predictors._run.pictures import decode
from mlms_predictors._run.served import LoadCalls
from PIL import Image

from pytest_mlms.core.errors import Crashed, DatasetError, InvalidRun, MlmsError
from pytest_mlms.core.records import Comparison, Verdict
from pytest_mlms.decide.upgrade.agents import AgentPair
from pytest_mlms.decide.upgrade.compared_inputs import ALL, Extent
from pytest_mlms.decide.upgrade.output_check import OutputCheck, OutputFindings, check_outputs
from pytest_mlms.decide.upgrade.output_verdict import (
    OF_FIRST_CALL,
    TIMED,
    Circumstances,
    agreement_of,
    by_design,
)
from pytest_mlms.decide.upgrade.paired_evidence import compare_batch_sizes
from pytest_mlms.decide.upgrade.rounds import SIDES, Array, Outputs, SideName
from pytest_mlms.manifest.schema import Input
from pytest_mlms.manifest.thresholds import Thresholds
from pytest_mlms.measure.agent.predictor import (
    Predictor,
    RepeatedCalls,
    ServedCall,
    ServedCalls,
    Turn,
)
from pytest_mlms.measure.agent.process import Refused
from pytest_mlms.measure.evaluate import closeness as evaluated_outputs
from pytest_mlms.measure.evaluate.closeness import Rule, Tolerance
from pytest_mlms.measure.evaluate.output_sweep import OutputSweep
from pytest_mlms.measure.evaluate.rows import ByBatch
from pytest_mlms.measure.pipeline import Dataset
from pytest_mlms.measure.pipeline.inputs import Decoding
from tests.support.fake_agents import FakePredictor
from tests.support.scored import PIXEL
from tests.support.upgrade_case import case_of
from tests.support.upgrades import find

PASSED = Verdict.PASSED
REGRESSED = Verdict.REGRESSED
INCONCLUSIVE = Verdict.INCONCLUSIVE
EXPECTED = {"y": np.array([[1.0, -100.0]])}
TEXTS = {"y": np.array(["cat", "größe", ""])}


def y(*values: float) -> dict[str, Any]:
    return {"y": np.array([values])}


def test_differences_up_to_a_small_share_of_like_values_are_rounding() -> None:
    rounding = check_outputs(EXPECTED, y(1.009, -100.0))
    assert rounding.verdict is PASSED
    assert rounding.ratio == pytest.approx(0.9)
    more = check_outputs(EXPECTED, y(1.011, -100.0))
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
        ({}, "'y' is absent, and (1, 2) of the baseline, for row 0"),
        (y(1.0), "'y' is (1, 1), and (1, 2) of the baseline, for row 0"),
        (
            {"y": EXPECTED["y"].astype("f4")},
            "'y' is float32, and float64 of the baseline, for row 0",
        ),
        (y(1.0, math.nan), ""),
        (y(1.0, math.inf), ""),
    ],
)
def test_outputs_that_cannot_be_compared_are_wrong(actual: Outputs, reason: str) -> None:
    found = check_outputs(EXPECTED, actual)
    assert found.verdict is REGRESSED
    assert found.lacking == reason


@pytest.mark.parametrize("has_accuracy", [True, False])
def test_a_variant_that_gives_nan_is_regressed_though_variants_differ_by_design(
    has_accuracy: bool,
) -> None:
    """It was PASSED beside accuracy, which a NaN of few inputs hardly lowers, else open."""
    about = Circumstances()
    nan, other = (OutputSweep({"y": Rule()}) for _ in range(2))
    nan.add(EXPECTED, y(math.nan, -100.0), ["row 0"])
    other.add(EXPECTED, y(3.0, -100.0), ["row 0"])
    found = [
        by_design(agreement_of(each, about), each, about, has_accuracy) for each in (nan, other)
    ]
    assert [each.verdict for each in found] == [REGRESSED, PASSED if has_accuracy else INCONCLUSIVE]
    about.note(TIMED, nan)
    assert by_design(agreement_of(other, about), other, about, has_accuracy).verdict is REGRESSED


@pytest.mark.parametrize(("sides", "verdict"), [("ab", PASSED), ("b", REGRESSED)])
def test_variants_whose_first_answers_both_have_nan_differ_by_design(
    sides: Sequence[SideName], verdict: Verdict
) -> None:
    """They were REGRESSED by their other numbers, though no variant has more NaN."""
    about = Circumstances()
    for side in sides:
        fresh = OutputSweep({"y": Rule()}, of_itself=True)
        part = about.part(OF_FIRST_CALL, fresh, side)
        part.add_call([(1, 0)], EXPECTED, y(math.nan, -100.0), ["row 0"])
    other = OutputSweep({"y": Rule()})
    other.add(EXPECTED, y(3.0, -100.0), ["row 0"])
    assert by_design(agreement_of(other, about), other, about, True).verdict is verdict


def test_the_worst_of_several_outputs_decides() -> None:
    ones = np.ones((1, 2))
    expected = {"x": ones, "y": ones}
    actual = {"x": ones, "y": 1.00005 * ones}
    found = check_outputs(expected, actual)
    assert found.ratio == pytest.approx(0.5)


def test_no_outputs_agree_with_none() -> None:
    assert check_outputs({}, {}).verdict is PASSED


def test_agreement_is_a_gate_of_outputs() -> None:
    found = check_outputs(EXPECTED, EXPECTED)
    assert (found.quantity, found.of, found.gate) == ("agreement", "outputs", True)


LABELS = np.array([0, 1] * 300)
SCORES = np.eye(10, dtype=np.float32)[LABELS]
IMAGE = PIXEL.model_copy(update={"name": "image"})
"""The input of the digits; here an image is its own number."""

Giving = Callable[[Array, int], Any]
"""Gives the scores of some rows, by their numbers, in a call of this number."""


def right(rows: Array, call: int) -> Array:
    scores: Array = SCORES[rows].copy()
    return scores


def wrong_on(wrong: Sequence[int]) -> Giving:
    """Give the other class for some of the rows."""

    def give(rows: Array, call: int) -> Array:
        scores = right(rows, call)
        is_wrong = np.isin(rows, wrong)
        scores[is_wrong, :2] = scores[is_wrong, 1::-1]
        return scores

    return give


def dataset(labels: Array | None = LABELS, count: int = 600) -> Dataset:
    numbers = [np.array([float(number)], np.float32) for number in range(count)]
    return Dataset("m.yaml:9: d.npz", (IMAGE,), {"image": numbers}, labels)


class Side(FakePredictor):
    """A side that gives what a function says; every turn repeats a call on the same batch."""

    def __init__(self, pid: int, give: Giving) -> None:
        super().__init__(pid)
        self.give = give
        self.inputs = [Tensor("image", "float32", (None, 1))]
        self.outputs = [Tensor("logits", "float32", (None, 10))]  # type: ignore[assignment]
        self.calls = 0
        self.repeated = RepeatedCalls(0, 0)
        self.served: Sequence[ServedCall] = ()
        self.batches: Sequence[Outputs] = ()

    def bind(self, batches: Sequence[Outputs], order: Sequence[int] = (), cycle: int = 0) -> Any:
        self.batches = batches
        return super().bind(batches)

    def predict(self, batch: Outputs) -> dict[str, Any]:
        assert self.agent.running, "a stopped process was called"
        self.calls += 1
        numbers = np.clip(batch["image"].reshape(len(batch["image"]), -1)[:, 0], 0, 599)
        return {"logits": self.give(numbers.astype(int), self.calls)}

    def turn(
        self,
        count: int = 1,
        skip: int = 0,
        first: int = 0,
        *,
        outputs: bool = False,
        memory: bool = False,
    ) -> Turn:
        assert not memory, "it takes longer than a small model's call"
        return Turn({}, self.predict(self.batches[first]), None)

    def repeated_calls(self) -> RepeatedCalls:
        return self.repeated

    def served_calls(self, fair: int = 0) -> ServedCalls:
        held = LoadCalls([(tuple(each.samples), [each.outputs["logits"]]) for each in self.served])
        told = [
            ServedCall(each.samples, {"logits": each.outputs[0]}, each.usual, each.picks)
            for each in (held.fair(fair) if fair else held.most_telling())
        ]
        return ServedCalls(told, held.count, held.others, held.held, held.differing)


class Check:
    """Output checks of the digits, whose scores are made up by side."""

    def __init__(self, folder: Path) -> None:
        self.a = Side(101, right)
        self.b = Side(102, right)
        self.dataset: Dataset | None = dataset()
        self.extent = Extent(None, 60.0, seed=7)
        self.case = replace(case_of(folder), batch_size=8)
        self.unheld: tuple[Giving, Giving] | None = None
        self.pictures: Mapping[SideName, Callable[[Decoding], Array]] | None = None
        self.rounds = 1
        self.of_first_call: Mapping[SideName, Outputs] = {}
        self.timed: Array = np.arange(24.0)

    @property
    def manifest(self) -> Any:
        return self.case.loaded.manifest

    def set_manifest(self, **fields: Any) -> None:
        changed = self.manifest.model_copy(update=fields)
        self.case = replace(self.case, loaded=replace(self.case.loaded, manifest=changed))

    def pair(self, a: Any, b: Any) -> AgentPair:
        labels: Mapping[SideName, str] = {"a": "baseline old", "b": "candidate new"}
        return AgentPair(cast(Predictor, a), cast(Predictor, b), labels)

    def open_unheld(self) -> Any:
        assert self.unheld
        a, b = (Side(200 + number, give) for number, give in enumerate(self.unheld))
        if self.timed.dtype.kind == "f" and (self.timed % 1).any():
            exact(a, self.unheld[0])
            exact(b, self.unheld[1])
        return contextlib.nullcontext(self.pair(a, b))

    def open_pictures(self) -> Any:
        assert self.pictures
        return contextlib.nullcontext(
            {side: SimpleNamespace(decode=decode) for side, decode in self.pictures.items()}
        )

    def run(self, **tolerances: float) -> list[Comparison]:
        check = OutputCheck(
            self.case,
            self.dataset,
            {"labels.txt": self.case.loaded.path.parent / "labels.txt"},
            tolerances,
            self.extent,
            self.open_unheld if self.unheld else None,
            self.open_pictures if self.pictures else None,
        )
        for _ in range(self.rounds):
            self.found = self._round(check)
        self.worse_inputs = list(self.found.worse_inputs)
        return list(self.found.comparisons)

    def _round(self, check: OutputCheck) -> OutputFindings:
        pair = self.pair(self.a, self.b)
        timed = self.timed.reshape(3, self.case.batch_size, -1)
        batches = [{"image": batch} for batch in timed]
        pair.bind(batches)
        first: dict[SideName, Outputs] = {}
        for side in SIDES:
            with pair.running(side) as predictor:
                first[side] = predictor.predict(batches[0])
        return check(pair, first, self.of_first_call)

    @property
    def told(self) -> str:
        return find(list(self.found.comparisons), "agreement").told


USUAL = ("top1", "top5", "f1_macro")


def quantities(comparisons: list[Comparison]) -> list[str]:
    return [compared.quantity for compared in comparisons]


@pytest.fixture
def check(tmp_path: Path) -> Check:
    return Check(tmp_path)


def test_equal_outputs_and_scores_pass(check: Check) -> None:
    found = check.run()
    assert quantities(found) == ["agreement", "batch_agreement", *USUAL]
    assert {compared.verdict for compared in found} == {PASSED}
    assert check.told == "outputs are equal on 600 of 600 inputs"
    assert check.found.outputs is not None
    assert (check.found.outputs.inputs, check.found.outputs.of) == (600, 600)


def test_the_text_of_passed_says_how_near_outputs_are_and_on_how_many_inputs(check: Check) -> None:
    check.b.give = lambda rows, call: right(rows, call) * np.float32(1 + 3e-6)
    assert find(check.run(), "agreement").verdict is PASSED
    assert check.told == "outputs agree within 3e-06 (allowed 0.0001) on 600 of 600 inputs"


def test_each_batch_is_prepared_once_for_both_sides(check: Check) -> None:
    check.run()
    assert check.a.calls - check.b.calls == 3  # the timed batches, for the spread of the baseline


def test_a_candidate_that_loses_answers_regresses_in_accuracy(check: Check) -> None:
    check.b.give = wrong_on(range(600))
    top1 = find(check.run(), "top1")
    assert top1.verdict is REGRESSED
    assert (top1.a, top1.b) == (1.0, 0.0)
    assert top1.ratio == -1.0
    assert check.worse_inputs[1].startswith("row 1: label 1, class_1 1 -> 0, probability_1 0.")


def test_scores_beyond_the_best_class_are_compared_where_they_are_limited_or_a_gate(
    check: Check,
) -> None:
    thresholds = Thresholds.model_validate({"auc": {"min": 0.9}, "recall": {"min": 0.5}})
    check.set_manifest(thresholds=thresholds)
    check.a.give = check.b.give = lambda rows, call: 5 * right(rows, call)  # logits
    found = check.run(average_precision=0.02)
    assert quantities(found)[2:] == [*USUAL, "recall", "auc", "average_precision"]
    gates = {compared.quantity for compared in found if compared.gate}
    assert "average_precision" in gates
    assert not gates & {"auc", "recall"}


def test_a_limit_that_the_drawn_inputs_can_not_tell_is_left_out_of_an_upgrade(
    check: Check,
) -> None:
    check.set_manifest(thresholds=Thresholds.model_validate({"ece": {"max": 0.9}}))
    assert quantities(check.run())[2:] == list(USUAL)  # a softmax of probabilities
    with pytest.raises(InvalidRun, match="ece can't be measured: .* before its softmax"):
        check.run(ece=0.02)


def test_accuracy_is_a_gate_where_the_manifest_names_it(check: Check) -> None:
    assert not find(check.run(), "top1").gate
    assert find(check.run(), "top1").tolerance == 0.01
    named = find(check.run(top1=0.2), "top1")
    assert (named.gate, named.tolerance) == (True, 0.2)


def over_seeds(test: Callable[[Check, int], None]) -> Callable[[Check], None]:
    """Run a test with 20 seeds."""

    def run(check: Check) -> None:
        for seed in range(20):
            test(check, seed)

    run.__doc__ = test.__doc__
    return run


@over_seeds
def test_wrong_outputs_on_5_of_100_unlabelled_inputs_regress(check: Check, seed: int) -> None:
    wrong = sorted(np.random.default_rng(seed).choice(100, 5, replace=False).tolist())
    check.dataset = dataset(None, count=100)
    check.case = without_accuracy(check.case)
    check.b.give = wrong_on(wrong)
    agreement = find(check.run(), "agreement")
    assert agreement.verdict is REGRESSED
    assert "on 5 of 100 inputs (worst: row " in check.told
    named = [int(line.split()[1].rstrip(":")) for line in check.worse_inputs]
    assert sorted(named) == wrong


def without_accuracy(case: Any) -> Any:
    manifest = case.loaded.manifest
    outputs = [output.model_copy(update={"type": "tensor"}) for output in manifest.outputs]
    changed = manifest.model_copy(update={"outputs": outputs, "task": "inference"})
    return replace(case, loaded=replace(case.loaded, manifest=changed))


@over_seeds
def test_answers_lost_on_5_of_100_labelled_inputs_regress(check: Check, seed: int) -> None:
    wrong = np.random.default_rng(seed).choice(100, 5, replace=False).tolist()
    check.dataset = dataset(LABELS[:100], count=100)
    check.b.give = wrong_on(wrong)
    found = check.run()
    assert find(found, "agreement").verdict is REGRESSED
    assert find(found, "top1").b == pytest.approx(0.95)
    assert ", and 5 have another best class; 5 right before and wrong now (" in check.told


FAULTS: list[Callable[[Array], Array]] = [
    lambda scores: scores * np.float32(0.991),
    lambda scores: scores.astype(np.float64),
    lambda scores: scores[..., np.newaxis],
]


@over_seeds
def test_scaled_outputs_another_type_and_another_shape_regress(check: Check, seed: int) -> None:
    def noisy(rows: Array, call: int) -> Array:
        noise = np.random.default_rng(seed).normal(size=(600, 10))[rows]
        return np.asarray(right(rows, call) + noise.astype(np.float32))

    check.case = without_accuracy(check.case)
    check.a.give = noisy
    fault = FAULTS[seed % len(FAULTS)]
    check.b.give = lambda rows, call: fault(noisy(rows, call))
    assert find(check.run(), "agreement").verdict is REGRESSED


@over_seeds
def test_nan_on_one_input_regresses_and_the_input_is_named(check: Check, seed: int) -> None:
    row = int(np.random.default_rng(seed).integers(600))
    check.case = without_accuracy(check.case)
    check.b.give = with_nan(row)
    agreement = find(check.run(), "agreement")
    assert agreement.verdict is REGRESSED
    assert (
        f"outputs differ by infinitely more than what is allowed on 1 of 600 inputs (worst: row {row})"
        in check.told
    )


def with_nan(row: int) -> Giving:
    def give(rows: Array, call: int) -> Array:
        scores = right(rows, call)
        scores[rows == row, 4] = np.nan
        return scores

    return give


def test_nan_of_both_sides_is_named_and_no_difference(check: Check) -> None:
    check.case = without_accuracy(check.case)
    check.a.give = check.b.give = with_nan(17)
    agreement = find(check.run(), "agreement")
    assert agreement.verdict is PASSED
    assert "the baseline has NaN for 1 of 600 inputs: row 17" in check.told


@pytest.mark.parametrize(("count", "verdict"), [(60, PASSED), (61, INCONCLUSIVE)])
def test_a_baseline_of_nan_for_more_than_a_tenth_of_the_inputs_is_no_measure(
    check: Check, count: int, verdict: Verdict
) -> None:
    def mostly_nan(rows: Array, call: int) -> Array:
        scores = right(rows, call)
        scores[rows < count] = np.nan
        return scores

    check.case = without_accuracy(check.case)
    check.a.give = mostly_nan
    check.b.give = right
    agreement = find(check.run(), "agreement")
    assert agreement.verdict is verdict
    assert ("NaN for too many inputs" in agreement.lacking) == (verdict is INCONCLUSIVE)


def test_a_baseline_of_nan_alone_is_invalid(check: Check) -> None:
    check.case = without_accuracy(check.case)
    check.a.give = lambda rows, call: np.full((len(rows), 10), np.nan, np.float32)
    with pytest.raises(InvalidRun, match="NaN for all inputs; there is nothing to compare with"):
        check.run()


def test_a_baseline_whose_scores_cannot_be_used_is_invalid(check: Check) -> None:
    check.a.give = with_nan(17)
    message = "the baseline's outputs can't be used: baseline old: .* first for number 17"
    with pytest.raises(InvalidRun, match=message):
        check.run()


def test_a_candidate_whose_scores_cannot_be_used_is_wrong(check: Check) -> None:
    check.b.give = with_nan(17)
    agreement = find(check.run(), "agreement")
    assert agreement.verdict is REGRESSED
    assert agreement.lacking.startswith("candidate new: ")


def test_an_input_that_only_the_candidate_refuses_is_named(check: Check) -> None:
    def refuse(rows: Array, call: int) -> Array:
        if 40 in rows:
            raise Refused("'predict' raised ValueError: a shape", "ValueError")
        return right(rows, call)

    check.case = without_accuracy(check.case)
    check.b.give = refuse
    agreement = find(check.run(), "agreement")
    assert agreement.verdict is REGRESSED
    assert agreement.lacking.startswith("the candidate refused row 40: ")


def test_a_share_of_inputs_may_differ_where_the_manifest_allows_it(check: Check) -> None:
    check.case = without_accuracy(allowing(check.case, 0.9))
    for wrong, verdict in ((20, PASSED), (60, Verdict.INCONCLUSIVE), (120, REGRESSED)):
        check.b.give = wrong_on(range(100, 100 + wrong))
        agreement = find(check.run(), "agreement")
        assert agreement.verdict is verdict


def allowing(case: Any, inputs: float) -> Any:
    text = case.loaded.path.read_text()
    line = f"  agreement: {{reference: onnxruntime, inputs: {inputs}}}\n"
    case.loaded.path.write_text(text.replace("thresholds:\n", f"thresholds:\n{line}"))
    from pytest_mlms.manifest import load

    return replace(case, loaded=load(case.loaded.path))


def test_a_sample_says_what_it_would_have_seen(check: Check) -> None:
    check.extent = Extent(500, 60.0, seed=7)
    assert find(check.run(), "agreement").replicates == 500
    assert check.told == (
        "outputs are equal on 500 of 600 inputs (seed 7); a fault on 0.6 % of them would have "
        "been seen with 95%"
    )


def test_a_budget_that_is_too_small_leaves_a_sample_of_300(check: Check) -> None:
    check.extent = Extent(None, 1e-9, seed=7)
    assert find(check.run(), "agreement").replicates == 300
    check.extent = Extent(ALL, 1e-9, seed=7)
    assert find(check.run(), "agreement").replicates == 600


def test_accuracy_that_is_a_gate_is_compared_on_all_inputs(check: Check) -> None:
    check.extent = Extent(None, 1e-9, seed=7)
    assert find(check.run(top1=0.01), "top1").replicates == 600


@over_seeds
def test_without_a_dataset_random_inputs_and_those_at_edges_are_compared(
    check: Check, seed: int
) -> None:
    check.dataset = None
    check.case = without_accuracy(check.case)
    check.extent = Extent(None, 60.0, seed)
    agreement = find(check.run(), "agreement")
    assert agreement.replicates >= 64
    assert f"random inputs (seed {seed})" in check.told
    check.b.give = wrong_on([0])  # the fake's answer to zeros
    agreement = find(check.run(), "agreement")
    assert agreement.verdict is REGRESSED


@over_seeds
def test_a_fault_of_another_number_of_threads_regresses(check: Check, seed: int) -> None:
    check.case = without_accuracy(check.case)
    check.unheld = (right, wrong_on([seed]))
    agreement = find(check.run(), "agreement")
    assert agreement.verdict is REGRESSED
    assert check.told.startswith(
        "at the frameworks' own number of threads, outputs differ by up to "
    )


def test_what_the_baseline_varies_by_itself_is_allowed_and_said(check: Check) -> None:
    check.a.give = lambda rows, call: right(rows, call) * np.float32(1 + 1e-3 * (call % 2))
    check.b.give = lambda rows, call: right(rows, call) * np.float32(1 + 5e-4)
    assert find(check.run(), "agreement").verdict is PASSED
    assert "the baseline's own 'logits' varies by 0.001 from call to call" in check.told


@pytest.mark.parametrize(("task", "verdict"), [("regression", REGRESSED), ("inference", PASSED)])
def test_a_column_that_varies_by_itself_widens_no_other_column(
    check: Check, task: str, verdict: Verdict
) -> None:
    """One of ten targets that varied by 0.2 % let another one be off by 0.3 %, and it PASSED."""

    def varying(rows: Array, call: int) -> Array:
        scores = right(rows, call).copy()
        scores[:, 1] *= np.float32(1 + 0.002 * (call % 2))
        return scores

    def off_in(column: int) -> Giving:
        def give(rows: Array, call: int) -> Array:
            scores = right(rows, call).copy()
            scores[:, column] *= np.float32(1.003)
            return scores

        return give

    check.case = without_accuracy(check.case)
    check.dataset = dataset(SCORES)
    outputs = [each.model_copy(update={"steps": []}) for each in check.manifest.outputs]
    check.set_manifest(task=task, outputs=outputs)
    check.a.give = varying
    for column, expected in ((1, PASSED), (0, verdict)):
        check.b.give = off_in(column)
        assert find(check.run(), "agreement").verdict is expected, (column, check.told)


def test_what_the_baseline_varies_by_threads_is_allowed_there_too(check: Check) -> None:
    check.case = without_accuracy(check.case)

    def scaled(change: float) -> Giving:
        return lambda rows, call: right(rows, call) * np.float32(1 + change)

    check.unheld = (scaled(5e-4), scaled(-2e-4))
    assert find(check.run(), "agreement").verdict is PASSED
    assert "varies by 0.0005 with other numbers of threads" in check.told
    check.unheld = (scaled(5e-4), scaled(-2e-3))
    assert find(check.run(), "agreement").verdict is REGRESSED


def test_what_the_baseline_varies_by_threads_is_allowed_for_all_inputs(check: Check) -> None:
    check.case = without_accuracy(check.case)
    check.unheld = (lambda rows, call: right(rows, call) * np.float32(1 + 5e-4), right)
    check.b.give = lambda rows, call: right(rows, call) * np.float32(1 + 8e-4)
    assert find(check.run(), "agreement").verdict is PASSED


def repeats(differing: int, factor: float) -> RepeatedCalls:
    kept = [(1, {"logits": SCORES[8:16] * np.float32(factor)})] if differing else []
    return RepeatedCalls(140, differing, kept)


def test_a_fault_on_every_7th_call_is_named_with_its_rate(check: Check) -> None:
    check.b.repeated = repeats(20, 0.9)
    assert find(check.run(), "agreement").verdict is REGRESSED
    assert check.told.startswith(
        "B gives something else on 20 of 140 repeated calls on the same input (1 of 7), by up to "
        "1,000 times what is allowed"
    )


@pytest.mark.parametrize(("nan", "verdict"), [("b", REGRESSED), ("ab", PASSED), ("a", PASSED)])
def test_repeated_calls_with_nan_are_worse_than_those_of_another_form(
    check: Check, nan: str, verdict: Verdict
) -> None:
    for name, side in (("a", check.a), ("b", check.b)):
        value = np.nan if name in nan else 1.0
        kept = [(0, {"logits": np.full((8, 9), value, np.float32)})]
        side.repeated = RepeatedCalls(140, 20, kept)
    assert find(check.run(), "agreement").verdict is verdict


def test_repeated_calls_may_differ_by_rounding_and_as_those_of_the_baseline(check: Check) -> None:
    check.b.repeated = repeats(20, 1 + 1e-6)
    assert find(check.run(), "agreement").verdict is PASSED
    check.a.repeated, check.b.repeated = repeats(1, 0.9), repeats(20, 0.999)
    assert find(check.run(), "agreement").verdict is PASSED
    check.a.repeated = check.b.repeated = repeats(20, 0.9)
    assert find(check.run(), "agreement").verdict is PASSED
    assert check.told.endswith(
        "the baseline gives something else on 20 of 140 repeated calls on the same input (1 of 7), "
        "by up to 1,000 times what is allowed"
    )


@pytest.mark.parametrize(
    ("baseline", "candidate"),
    [
        ((20, 0.999), (20, 0.9)),
        ((1, 0.9), (20, 0.9)),
        ((1, 0.9), (20, 0.91)),
        ((20, 0.9), (20, math.nan)),
    ],
)
def test_a_baseline_that_is_wrong_now_and_then_hides_no_worse_candidate(
    check: Check, baseline: tuple[int, float], candidate: tuple[int, float]
) -> None:
    check.a.repeated = repeats(*baseline)
    check.b.repeated = repeats(*candidate)
    assert find(check.run(), "agreement").verdict is REGRESSED
    assert check.told.startswith("B gives something else on 20 of 140 repeated calls")


def test_a_candidate_that_differs_from_process_to_process_regresses(check: Check) -> None:
    check.rounds = 2
    drift = iter([1.0] * 79 + [1.5] * 100)
    check.b.give = lambda rows, call: right(rows, call) * np.float32(next(drift))
    assert find(check.run(), "agreement").verdict is REGRESSED


@pytest.mark.parametrize("share", [1, 0.9])
@pytest.mark.parametrize(
    ("baseline", "candidate", "verdict"),
    [
        (1.0, 1.0, PASSED),
        (1.0, 1 + 1e-6, PASSED),
        (1.0, 1.5, REGRESSED),
        (1.0, math.nan, REGRESSED),
        (1.5, 1.5, PASSED),
        (1.5, math.nan, REGRESSED),
        (1.5, 1.0, PASSED),
    ],
)
def test_a_candidate_whose_first_answer_is_another_regresses(
    check: Check, share: float, baseline: float, candidate: float, verdict: Verdict
) -> None:
    """It PASSED: warm-ups hid what a process gives first, also where that was NaN."""
    check.case = without_accuracy(allowing(check.case, share) if share < 1 else check.case)
    check.rounds = 3
    factors: dict[SideName, float] = {"a": baseline, "b": candidate}
    check.of_first_call = {
        side: {"logits": SCORES[:8] * np.float32(factor)} for side, factor in factors.items()
    }
    assert find(check.run(), "agreement").verdict is verdict
    told = "the baseline gives something else in the first call of a process, too"
    assert (told in check.told) == (baseline != 1)


@pytest.mark.parametrize("share", [1, 0.9])
@pytest.mark.parametrize(
    ("baseline", "candidate", "verdict"),
    [(9, 9, PASSED), (10, 9, REGRESSED), (9, 10, PASSED)],
)
def test_a_first_answer_of_another_form_regresses_where_that_of_the_baseline_is_not(
    check: Check, share: float, baseline: int, candidate: int, verdict: Verdict
) -> None:
    """It was REGRESSED also where the baseline did just the same."""
    check.case = without_accuracy(allowing(check.case, share) if share < 1 else check.case)
    check.rounds = 3
    check.of_first_call = {
        "a": {"logits": SCORES[:8, :baseline]},
        "b": {"logits": SCORES[:8, :candidate]},
    }
    assert find(check.run(), "agreement").verdict is verdict


@pytest.mark.parametrize(("nan", "verdict"), [("b", REGRESSED), ("ab", PASSED), ("a", PASSED)])
def test_nan_in_first_answers_of_another_form_is_seen(
    check: Check, nan: str, verdict: Verdict
) -> None:
    """The baseline's first answer has another form, too: the candidate's values weren't looked at."""
    check.case = without_accuracy(check.case)
    check.rounds = 3
    check.of_first_call = {
        side: {"logits": np.full((8, 9), np.nan if side in nan else 1.0, np.float32)}
        for side in ("a", "b")
    }
    assert find(check.run(), "agreement").verdict is verdict


def test_other_outputs_that_are_as_accurate_have_regressed_all_the_same(check: Check) -> None:
    check.b.give = lambda rows, call: 2 * right(rows, call)
    agreement, _, *accuracy = check.run()
    assert agreement.verdict is REGRESSED
    assert {compared.verdict for compared in accuracy} == {PASSED}
    assert len(check.worse_inputs) == 5
    assert check.worse_inputs[0].startswith("row ")


def test_inputs_that_got_worse_are_named_where_outputs_disagree(check: Check) -> None:
    check.b.give = wrong_on([3])
    top1 = find(check.run(), "top1")
    assert top1.verdict is not REGRESSED
    (line,) = check.worse_inputs
    assert line.startswith("row 3: label 1, class_1 1 -> 0")


def by_batch(factor: float) -> Giving:
    """Give other scores where a batch is not of the size that is timed."""

    def give(rows: Array, call: int) -> Array:
        return right(rows, call) * np.float32(1 if len(rows) == 8 else factor)

    return give


def test_a_candidate_whose_outputs_depend_on_the_size_of_the_batch_regresses(check: Check) -> None:
    check.b.give = by_batch(1.01)
    found = check.run()
    assert find(found, "agreement").verdict is PASSED
    compared = find(found, "batch_agreement")
    assert (compared.verdict, compared.gate) == (REGRESSED, False)
    assert compared.a == 0.0
    assert compared.b == pytest.approx(99, rel=0.01)
    text = "alone and in a batch of 8, outputs differ by 99 times rounding in B, by 0 times in A"
    assert compared.told == f"{text} (allowed 1)"


def test_a_candidate_that_gives_nan_for_inputs_alone_regresses(check: Check) -> None:
    check.b.give = by_batch(math.nan)
    compared = find(check.run(), "batch_agreement")
    assert compared.verdict is REGRESSED
    assert "outputs differ by infinitely more than rounding in B, by 0 times in A" in compared.told


@pytest.mark.parametrize(
    ("alone", "together", "verdict"),
    [(1, 1.5, PASSED), (1, math.nan, REGRESSED), (math.nan, 1, REGRESSED)],
)
def test_a_variant_may_differ_by_the_size_of_the_batch_but_not_by_nan(
    alone: float, together: float, verdict: Verdict
) -> None:
    """One that gave NaN in batches alone PASSED, as variants may take a scale for each batch."""
    found = {}
    for side, factors in (("a", (1, 1)), ("b", (alone, together))):
        sweep = OutputSweep({"y": Rule()}, of_itself=True)
        one, eight = (np.float32(factor) * SCORES[:8] for factor in factors)
        sweep.add({"y": one}, {"y": eight}, ["input"] * 8)
        found[cast(SideName, side)] = ByBatch(sweep)
    compared = compare_batch_sizes(found, None, 1.0, by_design=True)
    assert compared is not None
    assert compared.verdict is verdict


@pytest.mark.parametrize(
    ("scores", "verdict"),
    [
        ([1, math.nan], PASSED),
        ([math.nan, math.nan, math.nan], REGRESSED),
        ([1, 1], PASSED),
        ([2, 1], REGRESSED),
    ],
)
def test_a_baseline_beyond_measure_by_the_size_of_the_batch_hides_no_other_fault(
    scores: list[float], verdict: Verdict
) -> None:
    """NaN for one input, or one other label, hid any scores and NaN for all inputs."""
    a_scores = [math.nan] if math.isnan(scores[-1]) else [1]
    found = {}
    for side, factors in (("a", a_scores), ("b", scores)):
        rules = {"scores": Rule(), "label": Rule()}
        sweep = OutputSweep(rules, of_itself=True)
        together = {"scores": SCORES[:8].copy(), "label": LABELS[:8].copy()}
        for row, factor in enumerate(factors):
            together["scores"][row] *= np.float32(factor)
        together["label"][0] = 1
        sweep.add({"scores": SCORES[:8], "label": LABELS[:8]}, together, ["input"] * 8)
        found[cast(SideName, side)] = ByBatch(sweep)
    compared = compare_batch_sizes(found, None, 1.0, by_design=False)
    assert compared is not None
    assert compared.verdict is verdict


@pytest.mark.parametrize(
    ("unjudged", "factor", "verdict"),
    [
        (range(7), 1, INCONCLUSIVE),
        (range(4), 1, PASSED),
        (range(7), 1.5, REGRESSED),
        (range(8), 1.5, INCONCLUSIVE),
    ],
)
def test_inputs_of_which_rounding_decides_most_do_not_pass_alone_and_together(
    unjudged: range, factor: float, verdict: Verdict
) -> None:
    """Seven of eight were not judged, and outputs that were said to be equal PASSED."""
    names = [f"input {row + 1}" for row in range(8)]
    found = {}
    for side, one in (("a", 1), ("b", factor)):
        sweep = OutputSweep({"y": Rule()}, of_itself=True)
        together = SCORES[:8].copy()
        together[7] *= np.float32(one)
        sweep.add({"y": SCORES[:8]}, {"y": together}, names)
        sweep.unjudged = [names[row] for row in unjudged] if side == "b" else []
        found[cast(SideName, side)] = ByBatch(sweep)
    compared = compare_batch_sizes(found, None, 1.0, by_design=False)
    assert compared is not None
    assert compared.verdict is verdict
    assert (f"for {len(unjudged)} of 8 inputs" in compared.told) is (len(unjudged) < 8)
    assert ("rounding decides the outputs for" in compared.lacking) is (verdict is INCONCLUSIVE)


def test_as_much_as_the_baseline_differs_by_the_size_of_the_batch_is_allowed(check: Check) -> None:
    check.a.give = by_batch(1.01)
    for factor, verdict in ((1.01, PASSED), (1.03, REGRESSED)):
        check.b.give = by_batch(factor)
        assert find(check.run(), "batch_agreement").verdict is verdict
    check.b.give = by_batch(1.012)
    assert find(check.run(), "batch_agreement").verdict is PASSED
    named = find(check.run(batch_agreement=0.1), "batch_agreement")
    assert (named.verdict, named.gate, named.tolerance) == (REGRESSED, True, 0.1)


def test_a_batch_that_only_the_candidate_refuses_regresses(check: Check) -> None:
    def refuse(rows: Array, call: int) -> Array:
        if len(rows) == 1:
            raise Refused("'predict' raised ValueError: a shape", "ValueError")
        return right(rows, call)

    check.b.give = refuse
    compared = find(check.run(), "batch_agreement")
    assert compared.verdict is REGRESSED
    assert compared.lacking.startswith("it refuses a batch of 1: ")


@pytest.mark.parametrize(("factor", "verdict"), [(1.0, PASSED), (1.01, REGRESSED)])
def test_a_candidate_that_no_longer_says_that_it_takes_batches_is_held_to_it(
    check: Check, factor: float, verdict: Verdict
) -> None:
    check.b.inputs = [Tensor("image", "float32", (8, 1))]
    check.b.give = by_batch(factor)
    assert find(check.run(), "batch_agreement").verdict is verdict


def two_rows_of_one(rows: Array, call: int) -> Array:
    return right(np.repeat(rows, 2) if len(rows) == 1 else rows, call)


def test_a_candidate_without_a_row_for_each_input_regresses(check: Check) -> None:
    check.b.give = two_rows_of_one
    compared = find(check.run(), "batch_agreement")
    assert compared.verdict is REGRESSED
    assert compared.lacking == "it doesn't give a row of 'logits' for each of 8 inputs"
    check.a.give = two_rows_of_one
    assert "batch_agreement" not in quantities(check.run())
    compared = find(check.run(batch_agreement=1.0), "batch_agreement")
    assert (compared.verdict, compared.lacking) == (
        INCONCLUSIVE,
        "no output has a row for each input",
    )


@pytest.mark.parametrize("is_gate", [True, False])
def test_a_model_of_one_batch_size_is_not_compared_by_it(check: Check, is_gate: bool) -> None:
    for side in (check.a, check.b):
        side.inputs = [Tensor("image", "float32", (8, 1))]
    found = check.run(**({"batch_agreement": 1.0} if is_gate else {}))
    assert ("batch_agreement" in quantities(found)) is is_gate
    if is_gate:
        compared = find(found, "batch_agreement")
        assert compared.verdict is INCONCLUSIVE
        assert "doesn't say that it takes batches of any size" in compared.lacking


def test_each_round_has_random_inputs_of_its_own(check: Check) -> None:
    check.dataset = None
    check.case = without_accuracy(check.case)
    first = find(check.run(), "agreement")
    check.rounds = 3
    later = find(check.run(), "agreement")
    assert later.replicates == first.replicates + 2 * 16


def test_random_inputs_end_with_the_budget(check: Check) -> None:
    check.dataset = None
    check.case = without_accuracy(check.case)
    check.extent = Extent(None, 0.0, seed=7)
    found = find(check.run(), "agreement")
    assert 8 <= found.replicates < 64


def test_a_baseline_that_is_wrong_with_more_threads_is_said_and_hides_nothing(check: Check) -> None:
    check.case = without_accuracy(check.case)
    check.unheld = (lambda rows, call: 2 * right(rows, call), wrong_on([3]))
    assert find(check.run(), "agreement").verdict is PASSED
    assert "the baseline's own 'logits' varies by 1 with other numbers of threads" in check.told
    check.b.give = wrong_on([500])
    assert find(check.run(), "agreement").verdict is REGRESSED


def test_an_output_that_varies_by_threads_hides_no_fault_of_another_one(check: Check) -> None:
    check.case = without_accuracy(check.case)
    logits = check.manifest.outputs[0]
    check.set_manifest(outputs=[logits, logits.model_copy(update={"name": "best"})])

    def classes(side: Side, give: Giving, wrong: int) -> None:
        def predict(batch: Outputs) -> dict[str, Any]:
            scores = give(batch["image"].reshape(len(batch["image"]), -1)[:, 0].astype(int), 0)
            return {"logits": scores, "best": scores.argmax(axis=1) + wrong}

        side.predict = predict  # type: ignore[method-assign]

    def tenth(rows: Array, call: int) -> Array:
        return np.float32(0.9) * right(rows, call)

    for side in (check.a, check.b):
        classes(side, right, 0)
    for give, verdict in ((right, PASSED), (tenth, REGRESSED)):
        unheld = Side(201, right), Side(202, give)
        classes(unheld[0], right, 1)
        classes(unheld[1], give, 0)
        check.unheld = (right, give)
        check.open_unheld = lambda unheld=unheld: (  # type: ignore[method-assign, misc]
            contextlib.nullcontext(check.pair(*unheld))
        )
        check.dataset = dataset(labels=None)
        assert find(check.run(), "agreement").verdict is verdict, check.told
        assert "'best' varies by more than is allowed with other numbers" in check.told


def test_a_baseline_that_varies_by_threads_hides_no_nan_there(check: Check) -> None:
    check.case = without_accuracy(check.case)
    check.unheld = (
        lambda rows, call: 2 * right(rows, call),
        lambda rows, call: np.full_like(right(rows, call), np.nan),
    )
    assert find(check.run(), "agreement").verdict is REGRESSED


def test_a_baseline_of_random_values_hides_no_nan(check: Check) -> None:
    check.case = without_accuracy(check.case)
    check.a.give = lambda rows, call: right(rows, call) + np.float32(call % 2)
    check.b.give = with_nan(500)
    assert find(check.run(), "agreement").verdict is REGRESSED


def sines(order: int, least: float = 0.0) -> Giving:
    """Give sines of large sums taken in one of two orders; 1 for whole numbers and small ones."""

    def give(numbers: Array, call: int) -> Array:
        terms = numbers[:, np.newaxis] * np.linspace(3e3, 7e4, 20, dtype=np.float32)
        total = np.zeros(len(numbers), np.float32)
        for term in terms.T[::order]:
            total = total + term
        is_exact = (numbers == np.trunc(numbers)) | (np.abs(numbers) < least)
        values = np.where(is_exact, np.float32(1), np.sin(total))
        return np.repeat(values[:, np.newaxis], 10, axis=1)

    return give


def exact(side: Side, give: Giving) -> None:
    """Let a side give scores for the values of its images, which aren't rounded to numbers."""

    def predict(batch: Outputs) -> dict[str, Any]:
        return {"logits": give(batch["image"][:, 0].astype(np.float32), 0)}

    side.predict = predict  # type: ignore[method-assign]


def test_where_rounding_decides_outputs_are_not_judged_and_that_is_said(check: Check) -> None:
    check.case = without_accuracy(check.case)
    check.dataset = None
    exact(check.a, sines(1, least=10))
    exact(check.b, sines(-1, least=10))
    assert find(check.run(), "agreement").verdict is PASSED
    assert "not judged for inputs of large magnitude, where rounding decides" in check.told


def test_inputs_that_rounding_decides_are_none_of_those_that_differ_however_many_do(
    check: Check,
) -> None:
    """After 64 that differ they were counted: 2.5 % of many were more than the 5 % that may."""
    check.case = without_accuracy(allowing(check.case, 0.95))
    numbers = [np.array([number + 0.5], np.float32) for number in range(4000)]
    check.dataset = Dataset("m.yaml:9: d.npz", (IMAGE,), {"image": numbers}, None)

    def give(usual: float, other: float) -> Giving:
        def scores(values: Array, call: int) -> Array:
            is_unstable = np.trunc(values) % 12 == 2
            factor = np.where(is_unstable & (values % 1 == 0.5), usual, 1.1)
            factor = np.where(is_unstable, factor, np.where(values % 40 == 1.5, other, 1))
            return np.repeat(factor[:, np.newaxis], 10, axis=1).astype(np.float32)

        return scores

    exact(check.a, give(1.0, 1.0))
    exact(check.b, give(1.1, 2.0))
    assert find(check.run(), "agreement").verdict is PASSED, check.told
    assert "on 100 of 4,000 inputs" in check.told


def noisy_by_batch(order: int) -> Giving:
    """Take the sums of sines in another order where a batch is not of the size that is timed."""

    def give(numbers: Array, call: int) -> Array:
        return np.asarray(sines(order if len(numbers) == 8 else -order)(numbers, call))

    return give


def test_where_rounding_decides_no_comparison_of_a_side_with_itself_is_judged(check: Check) -> None:
    check.case = without_accuracy(check.case)
    check.dataset = None
    check.rounds = 2
    exact(check.a, sines(1))
    exact(check.b, noisy_by_batch(1))
    found = check.run()
    compared = find(found, "batch_agreement")
    assert compared.verdict is PASSED, compared
    assert compared.told.endswith("not judged for 3 of 8 inputs, where rounding decides")
    assert find(found, "agreement").verdict is not REGRESSED, check.told


def test_where_rounding_decides_other_numbers_of_threads_are_not_judged(check: Check) -> None:
    check.case = without_accuracy(check.case)
    check.dataset = None
    check.timed = np.linspace(0.1, 0.9, 24, dtype=np.float32)
    exact(check.a, sines(1))
    exact(check.b, sines(1))
    check.unheld = (sines(1), sines(-1))
    agreement = find(check.run(), "agreement")
    assert agreement.verdict is INCONCLUSIVE, check.told
    assert "not judged for timed batch 1" in check.told
    check.unheld = (sines(1), lambda numbers, call: 2 + 2 * sines(1)(numbers, call))
    assert find(check.run(), "agreement").verdict is REGRESSED


def norm(mean: Callable[[Array], Array], epsilon: float = 1e-12) -> Giving:
    """Give what a layer and a norm make of pictures, by one of several ways to take a mean."""

    def give(values: Array, call: int) -> Array:
        layer = values * np.float32(0.3) + np.float32(0.1)
        centred = layer - mean(layer)[:, np.newaxis]
        return np.asarray(centred / np.sqrt(mean(centred**2)[:, np.newaxis] + np.float32(epsilon)))

    return give


def in_order(values: Array) -> Array:
    return np.asarray(np.cumsum(values, axis=1)[:, -1] / np.float32(values.shape[1]))


def pairwise(values: Array) -> Array:
    return np.asarray(values.mean(axis=1))


def pictures_of_64(check: Check, a: Giving, b: Giving) -> None:
    """Let both sides take pictures of 64 values, drawn at random."""
    check.case = without_accuracy(check.case)
    check.dataset = None
    inputs = [part.model_copy(update={"shape": ["batch", 64]}) for part in check.manifest.inputs]
    check.set_manifest(inputs=inputs)
    check.timed = np.random.default_rng(0).standard_normal((24, 64)).astype(np.float32)
    for side, give in ((check.a, a), (check.b, b)):
        side.inputs = [Tensor("image", "float32", (None, 64))]
        side.outputs = [Tensor("logits", "float32", (None, 64))]  # type: ignore[assignment]
        side.predict = lambda batch, give=give: {"logits": give(batch["image"], 0)}  # type: ignore


def test_an_input_of_one_value_is_not_judged_where_a_norm_makes_rounding_of_it(
    check: Check,
) -> None:
    pictures_of_64(check, norm(pairwise), norm(in_order))
    assert find(check.run(), "agreement").verdict is PASSED, check.told
    assert "not judged for inputs of zeros, denormal inputs, where" in check.told


def test_a_fault_on_an_input_of_one_value_regresses_where_rounding_does_not_decide_it(
    check: Check,
) -> None:
    pictures_of_64(check, norm(pairwise, 1e-3), norm(in_order, 1e-3))
    assert find(check.run(), "agreement").verdict is PASSED, check.told

    def wrong(values: Array, call: int) -> Array:
        found: Array = norm(in_order, 1e-3)(values, call)
        found[(values == 0).all(axis=1)] += np.float32(0.01)
        return found

    pictures_of_64(check, norm(pairwise, 1e-3), wrong)
    assert find(check.run(), "agreement").verdict is REGRESSED


@pytest.mark.parametrize("bad", [np.nan, np.inf, 100.0])
def test_what_rounding_does_not_explain_regresses_where_it_decides(
    check: Check, bad: float
) -> None:
    check.case = without_accuracy(check.case)
    check.dataset = None
    exact(check.a, sines(1))
    exact(check.b, sines(-1))
    agreement = find(check.run(), "agreement")
    assert agreement.verdict is INCONCLUSIVE, check.told
    assert "rounding decides the outputs for too many inputs" in agreement.lacking

    def give(numbers: Array, call: int) -> Array:
        found: Array = sines(-1)(numbers, call)
        found[np.abs(numbers) > 1e4] = bad
        return found

    exact(check.b, give)
    assert find(check.run(), "agreement").verdict is REGRESSED


def test_a_baseline_that_varies_much_is_no_measure(check: Check) -> None:
    check.case = without_accuracy(check.case)
    check.a.give = lambda rows, call: right(rows, call) * np.float32(1 + 0.2 * (call % 2))
    check.b.give = lambda rows, call: right(rows, call) * np.float32(1.1)
    agreement = find(check.run(), "agreement")
    assert agreement.verdict is INCONCLUSIVE
    assert "the baseline's own 'logits' varies by 0.18 from call to call" in agreement.lacking
    check.b.give = lambda rows, call: right(rows, call) * np.float32(3)
    assert find(check.run(), "agreement").verdict is REGRESSED


def test_what_threads_change_of_a_baseline_that_varies_much_hides_not_that_it_does(
    check: Check,
) -> None:
    check.case = without_accuracy(check.case)
    check.a.give = lambda rows, call: right(rows, call) * np.float32(1 + 0.2 * (call % 2))
    check.b.give = lambda rows, call: right(rows, call) * np.float32(1.1)
    check.unheld = (lambda rows, call: right(rows, call) * np.float32(1.6), right)
    agreement = find(check.run(), "agreement")
    assert agreement.verdict is INCONCLUSIVE
    assert "varies by 0.18 from call to call" in agreement.lacking
    assert check.found.outputs is not None
    assert check.found.outputs.spreads["logits"] > 0.3


def test_a_baseline_that_varies_a_little_hides_no_fault_of_threads(check: Check) -> None:
    check.case = without_accuracy(check.case)
    check.a.give = lambda rows, call: right(rows, call) * np.float32(1 + 0.008 * (call % 2))
    check.unheld = (right, wrong_on([3]))
    assert find(check.run(), "agreement").verdict is REGRESSED
    assert "varies by 0.008 from call to call" in check.told


def of_whole_numbers(seed: int) -> Giving:
    random = np.random.default_rng(seed)
    return lambda rows, call: random.integers(0, 9, (len(rows), 10))


def of_other_shapes(seed: int) -> Giving:
    return lambda rows, call: right(rows, call)[:, : 9 + (seed + call) % 2]


@pytest.mark.parametrize(
    ("giving", "problem"),
    [
        (of_whole_numbers, "'logits' by inf times what is allowed"),
        (of_other_shapes, r"'logits' is \(8, 10\), and \(8, 9\) of the baseline"),
    ],
)
def test_a_baseline_whose_whole_numbers_or_shapes_vary_is_invalid(
    check: Check, giving: Callable[[int], Giving], problem: str
) -> None:
    check.case = without_accuracy(check.case)
    check.a.give, check.b.give = giving(1), giving(2)
    message = f"baseline old gave other outputs in a second call .*: {problem}.*; fix the model's"
    with pytest.raises(InvalidRun, match=message):
        check.run()


def test_a_baseline_that_varies_by_more_than_the_manifests_tolerance_is_invalid(
    check: Check,
) -> None:
    check.case = without_accuracy(allowing(check.case, 1.0))
    check.a.give = lambda rows, call: right(rows, call) * np.float32(1 + 0.2 * (call % 2))
    with pytest.raises(InvalidRun, match="in a second call than in the first"):
        check.run()


def test_a_baseline_beyond_the_manifests_tolerance_with_more_threads_is_no_fault_of_the_candidate(
    check: Check,
) -> None:
    check.case = without_accuracy(allowing(check.case, 1.0))
    check.unheld = (lambda rows, call: 2 * right(rows, call), right)
    assert find(check.run(), "agreement").verdict is PASSED
    assert "'logits' varies by more than is allowed with other numbers of threads" in check.told


NUMBERS = 100
PICTURE = Input.model_validate(
    {
        "name": "image",
        "type": "image",
        "element_type": "float32",
        "layout": "NHWC",
        "steps": [{"decode": {"color": "L"}}],
    }
)


def use_pictures(check: Check, decode_b: Callable[[Decoding], Array]) -> None:
    """Make the dataset one of pictures with a pixel each, whose level is the number of its row."""
    contents = []
    for number in range(NUMBERS):
        stream = io.BytesIO()
        Image.fromarray(np.full((1, 1), number, np.uint8)).save(stream, "PNG")
        contents.append(stream.getvalue())
    files = [f"{number}.png" for number in range(NUMBERS)]
    elements = {"image": contents}
    check.dataset = Dataset("m.yaml:9: d", (PICTURE,), elements, LABELS[:NUMBERS], files)
    check.pictures = {"a": decoded, "b": decode_b}


def decoded(asked: Decoding) -> Array:
    return np.asarray(decode(*asked[:4]))


def other_by(levels: int, number: int) -> Callable[[Decoding], Array]:
    """Decode the picture of a number, and those of larger ones, with this difference."""

    def decode_b(asked: Decoding) -> Array:
        pixels = decoded(asked)
        return pixels + np.uint8(levels) if pixels[0, 0] >= number else pixels

    return decode_b


def test_pictures_that_both_stacks_decode_alike_pass(check: Check) -> None:
    use_pictures(check, decoded)
    assert {compared.verdict for compared in check.run()} == {PASSED, Verdict.INCONCLUSIVE}
    assert check.told.startswith("both stacks decode 100 pictures to equal values; outputs are eq")


def test_accuracy_is_that_of_own_inputs_and_outputs_are_compared_on_the_same(check: Check) -> None:
    use_pictures(check, other_by(1, number=0))
    found = check.run()
    assert find(found, "agreement").verdict is PASSED
    text = (
        "inputs differ in 100 % of the values of 100 pictures, by up to 1 of 255 levels (allowed 1)"
    )
    assert check.told.startswith(
        f"{text}; outputs are equal on 100 of 100 inputs; 100 right before"
    )
    top1 = find(found, "top1")
    assert (top1.a, top1.verdict) == (1.0, REGRESSED)
    assert top1.b < 0.5


def test_a_picture_that_is_decoded_by_more_than_a_level_otherwise_regresses(check: Check) -> None:
    use_pictures(check, other_by(2, number=NUMBERS - 1))
    check.case = without_accuracy(check.case)
    agreement = find(check.run(), "agreement")
    assert (agreement.verdict, agreement.ratio) == (REGRESSED, 2)
    assert "more in 1 of them (99.png); outputs are equal on" in check.told
    assert check.worse_inputs == ["99.png: image[0, 0] 99 -> 101"]


def test_a_picture_that_the_candidate_can_not_decode_regresses(check: Check) -> None:
    def refuse(asked: Decoding) -> Array:
        if decoded(asked)[0, 0] == 7:
            raise DatasetError("cannot identify image file")
        return decoded(asked)

    use_pictures(check, refuse)
    agreement = find(check.run(), "agreement")
    assert agreement.verdict is REGRESSED
    assert agreement.lacking == "the candidate can't decode 7.png: cannot identify image file"


def test_a_picture_of_another_size_regresses(check: Check) -> None:
    use_pictures(check, lambda asked: np.repeat(decoded(asked), 2, axis=0))
    agreement = find(check.run(), "agreement")
    assert agreement.verdict is REGRESSED
    assert "'image' is (1, 2, 1), and (1, 1, 1) of the baseline, for 0.png" in check.told


def test_a_picture_that_the_baseline_can_not_decode_is_an_error(check: Check) -> None:
    def refuse(asked: Decoding) -> Array:
        raise DatasetError("broken")

    use_pictures(check, decoded)
    check.pictures = {"a": refuse, "b": decoded}
    with pytest.raises(DatasetError, match="m.yaml:9: d: element 0: broken"):
        check.run()


def test_another_default_output_is_told_of_an_upgrade_that_passes(check: Check) -> None:
    check.a.default_output = "boxes"
    assert find(check.run(), "agreement").verdict is PASSED
    assert "default output" not in check.told
    check.b.default_output = "scores"
    assert find(check.run(), "agreement").verdict is PASSED
    assert "the default output was 'boxes' and is 'scores'" in check.told


def test_a_candidate_that_fails_at_its_own_number_of_threads_is_named(check: Check) -> None:
    sides = []

    def refuse(numbers: Array, call: int) -> Array:
        raise Refused("no kernel", "RuntimeError")

    @contextlib.contextmanager
    def opened() -> Iterator[AgentPair]:
        try:
            yield check.pair(Side(200, right), Side(201, refuse))
        except MlmsError as error:  # where the baseline doesn't fail, that is a crash
            sides.append(error.side)
            raise

    check.case = without_accuracy(check.case)
    check.unheld = (right, right)
    check.open_unheld = opened  # type: ignore[method-assign]
    check.run()
    assert sides == ["b"]


@pytest.mark.parametrize("killed", [False, True])
def test_a_candidate_that_is_killed_beside_three_processes_has_not_crashed(
    check: Check, killed: bool
) -> None:
    """Four processes of a large model may not fit into memory, as two do."""

    def opened() -> Any:
        crashed = Crashed("the agent ended by signal 9")
        crashed.side, crashed.killed = "b", killed
        raise crashed

    check.case = without_accuracy(check.case)
    check.unheld = (right, right)
    check.open_unheld = opened  # type: ignore[method-assign]
    if not killed:
        with pytest.raises(Crashed):
            check.run()
        return
    agreement = find(check.run(), "agreement")
    assert agreement.verdict is INCONCLUSIVE
    assert "threads: the agent ended by signal 9" in agreement.lacking
    check.b.give = wrong_on([500])
    assert find(check.run(), "agreement").verdict is REGRESSED


@pytest.mark.parametrize("nan_call", [1, 2, 3, 4])
def test_a_baseline_that_gives_nan_in_one_call_is_no_measure(check: Check, nan_call: int) -> None:
    check.case = without_accuracy(check.case)

    def give(rows: Array, call: int) -> Array:
        return right(rows, call) * np.float32(math.nan if call == nan_call else 1)

    check.a.give = give
    agreement = find(check.run(), "agreement")
    assert agreement.verdict is INCONCLUSIVE
    assert "the baseline's own 'logits' varies by inf from call to call" in agreement.lacking


@pytest.mark.parametrize("samples", [[1], [2, 0]])
def test_outputs_under_load_are_those_at_rest(check: Check, samples: list[int]) -> None:
    rows = np.concatenate([np.arange(8) + 8 * sample for sample in samples])
    check.a.served = [ServedCall(samples, {"logits": SCORES[rows]})]
    check.b.served = check.a.served
    assert find(check.run(), "agreement").verdict is Verdict.PASSED
    check.b.served = [ServedCall(samples, {"logits": SCORES[rows[::-1]]})]
    assert find(check.run(), "agreement").verdict is Verdict.REGRESSED
    assert "B against itself under load, outputs differ by up to" in check.told
    check.a.served = check.b.served
    with pytest.raises(InvalidRun, match="baseline old gave other outputs under load than at rest"):
        check.run()


def test_calls_under_load_add_up_to_the_inputs_of_which_a_share_must_agree(
    check: Check,
) -> None:
    check.case = without_accuracy(replace(allowing(check.case, 0.9), batch_size=1))
    check.timed = np.arange(3.0)
    check.b.served = [ServedCall([n], {"logits": SCORES[[n + 9]]}) for n in range(3)]
    assert find(check.run(), "agreement").verdict is Verdict.REGRESSED
    assert "B against itself under load, outputs differ by up to" in check.told
    check.a.served = check.b.served  # an agent tells first of calls that differ
    assert find(check.run(), "agreement").verdict is Verdict.PASSED
    check.a.served = check.b.served[1:2]
    check.rounds = 12
    assert find(check.run(), "agreement").verdict is Verdict.PASSED
    check.a.served = [*check.a.served, *(ServedCall([n], {"logits": SCORES[[n]]}) for n in (0, 2))]
    assert find(check.run(), "agreement").verdict is Verdict.REGRESSED


@pytest.mark.parametrize(("wrong", "verdict"), [(2, PASSED), (26, REGRESSED)])
def test_the_share_of_calls_that_are_wrong_under_load_decides_not_which_of_them_are_told(
    check: Check, wrong: int, verdict: Verdict
) -> None:
    """An agent tells first of calls that differ: 2 of 512 were REGRESSED where 5 may."""
    check.case = without_accuracy(replace(allowing(check.case, 0.99), batch_size=8))
    check.rounds = 6

    def calls(wrong: int) -> list[ServedCall]:
        found = [ServedCall([n % 3], {"logits": SCORES[8 * (n % 3) :][:8]}) for n in range(512)]
        for n in np.linspace(0, 511, wrong).astype(int):
            found[n] = ServedCall(found[n].samples, {"logits": found[n].outputs["logits"][::-1]})
        return found

    check.b.served = calls(wrong)
    assert find(check.run(), "agreement").verdict is verdict, check.told
    often = f"times what is allowed, in about {6 * wrong:,} of 3,072 calls"
    assert (often in check.told) == (verdict is REGRESSED)
    check.a.served = calls(26)
    assert find(check.run(), "agreement").verdict is PASSED, "as the baseline does, too"


def test_an_input_counts_once_however_many_calls_under_load_and_processes_have_it(
    check: Check,
) -> None:
    check.case = without_accuracy(replace(allowing(check.case, 0.99), batch_size=8))
    one_wrong = check.b.give = wrong_on([3])  # which one of 600 may be
    assert find(check.run(), "agreement").verdict is Verdict.PASSED
    of_round = check.b.calls
    check.b.served = 8 * [ServedCall([0, 1], {"logits": one_wrong(np.arange(16), 0)})]
    assert find(check.run(), "agreement").verdict is Verdict.PASSED, check.told
    check.b.served = ()
    check.b.calls = 0
    check.rounds = 8
    check.b.give = lambda rows, call: (one_wrong if call > of_round else right)(rows, call)
    assert find(check.run(), "agreement").verdict is Verdict.PASSED, check.told


def test_timed_inputs_of_rounds_add_up_to_the_inputs_of_which_a_share_must_agree(
    check: Check,
) -> None:
    """One of 24 in a round was more than is allowed, however many rounds there were without."""
    check.case = without_accuracy(allowing(check.case, 0.9997))
    check.rounds = 2
    seen = iter(range(100))

    def give(rows: Array, call: int) -> Array:
        scores = right(rows, call)
        if rows[0] == 16 and next(seen) == 2:  # before it the dataset had them
            scores[1] *= 2
        return scores

    check.b.give = give
    assert find(check.run(), "agreement").verdict is Verdict.PASSED, check.told
    assert next(seen) == 3
    check.b.give = lambda rows, call: give(rows, call) * np.float32(2 if rows[0] == 0 else 1)
    assert find(check.run(), "agreement").verdict is Verdict.REGRESSED


def test_processes_add_up_to_the_inputs_of_which_a_share_must_agree(check: Check) -> None:
    check.case = without_accuracy(replace(allowing(check.case, 0.9), batch_size=1))
    check.timed = np.arange(3.0)
    assert find(check.run(), "agreement").verdict is Verdict.PASSED
    of_round = check.b.calls
    check.b.calls = 0
    check.rounds = 4
    wrong = wrong_on(range(3))
    check.b.give = lambda rows, call: (wrong if call > of_round else right)(rows, call)
    assert find(check.run(), "agreement").verdict is Verdict.REGRESSED
    assert "B against itself in another process, outputs differ by up to" in check.told


@pytest.mark.parametrize(("rounds", "verdict"), [(2, PASSED), (4, REGRESSED)])
def test_a_call_of_another_process_is_one_trial_however_many_inputs_it_has(
    check: Check, rounds: int, verdict: Verdict
) -> None:
    """A process that was wrong once was REGRESSED by the eight inputs of the batch."""
    check.case = without_accuracy(allowing(check.case, 0.9))
    assert find(check.run(), "agreement").verdict is PASSED
    of_rounds = check.b.calls + 4 * np.arange(1, rounds)  # the last call of each further one
    check.b.calls = 0
    check.rounds = rounds
    wrong = wrong_on(range(24))
    check.b.give = lambda rows, call: (wrong if call in of_rounds else right)(rows, call)
    assert find(check.run(), "agreement").verdict is verdict
    undecided = "" if verdict is REGRESSED else "undecided "
    assert f"{undecided}B against itself in another process" in check.told


@pytest.mark.parametrize(("above", "verdict"), [(math.inf, INCONCLUSIVE), (0.9, REGRESSED)])
def test_an_input_at_an_edge_counts_once_though_a_batch_is_filled_with_it(
    check: Check, above: float, verdict: Verdict
) -> None:
    """Zeros alone were 8 of 104 inputs, which is more than 2 % of them."""
    check.case = without_accuracy(allowing(check.case, 0.98))
    check.dataset = None

    def wrong(values: Array, call: int) -> Array:
        is_wrong = (values == 0) | (values > above)
        return np.repeat(np.where(is_wrong, 2.0, 1.0)[:, np.newaxis], 10, axis=1)

    exact(check.a, lambda values, call: np.ones((len(values), 10)))
    exact(check.b, wrong)
    check.timed = np.full(24, 1e-3)
    assert find(check.run(), "agreement").verdict is verdict, check.told


def test_what_a_few_calls_leave_undecided_is_told_of_an_upgrade_that_passes(check: Check) -> None:
    """They said nothing: the text of PASSED was that outputs are equal."""
    check.case = without_accuracy(replace(allowing(check.case, 0.9), batch_size=1))
    check.timed = np.arange(3.0)
    wrong = {"logits": SCORES[[1]]}
    check.b.served = [ServedCall([n], {"logits": SCORES[[n and 2]]}) for n in (0, 2, 0)]
    check.b.served = [*check.b.served, ServedCall([2], wrong)]
    check.of_first_call = {"a": {"logits": SCORES[[0]]}, "b": wrong}
    assert find(check.run(), "agreement").verdict is PASSED
    assert "undecided B against itself under load: outputs differ by up to" in check.told
    assert "what is allowed in 1 of 4 calls" in check.told
    first = "undecided B against itself in the first call of a process: outputs differ by up to"
    assert first in check.told
    assert "what is allowed on 1 of 1 inputs" in check.told

    check.a.served = check.b.served
    check.b.served = ()
    assert find(check.run(), "agreement").verdict is PASSED
    assert "the baseline gives something else under load, too" in check.told
    assert "undecided B against itself under load" not in check.told


def test_batches_that_queries_are_joined_to_are_compared_between_both_sides(check: Check) -> None:
    def give(rows: Array, call: int) -> Array:
        return right(rows[::-1] if len(rows) > 8 else rows, call)

    check.b.give = give
    assert find(check.run(), "agreement").verdict is Verdict.PASSED
    check.b.served = [ServedCall([0, 1], {"logits": SCORES[np.arange(16)[::-1]]})]
    assert find(check.run(), "agreement").verdict is Verdict.REGRESSED
    assert "in the batches that queries under load were joined to, outputs differ" in check.told


def test_best_classes_that_rounding_changes_are_counted_of_an_upgrade_that_passes(
    check: Check,
) -> None:
    check.a.give = lambda rows, call: np.ones((len(rows), 10), np.float32)

    def flipped(rows: Array, call: int) -> Array:
        scores = check.a.give(rows, call)
        scores[rows % 2 == 0, 7] += np.float32(1e-6)
        return np.asarray(scores)

    check.b.give = flipped
    assert find(check.run(), "agreement").verdict is PASSED
    told = "; the best class is another on 300 of these inputs"
    assert f"on 600 of 600 inputs{told}" in check.told
    check.extent = Extent(400, 60.0, seed=7)
    check.run()
    assert "would have been seen with 95%; the best class is another on" in check.told


def test_inputs_that_rounding_decides_show_no_share_that_agrees() -> None:
    """They counted as such that agree, of which 90 % are enough here."""
    about = Circumstances(inputs=0.9)
    sweep = OutputSweep({}, inputs=1000, beyond=80)
    assert agreement_of(sweep, about).verdict is PASSED
    sweep.excused = 100
    found = agreement_of(sweep, about)
    assert found.verdict is INCONCLUSIVE
    assert "80 of 900 inputs" in found.lacking


def test_outputs_that_rounding_decides_are_not_said_to_be_equal() -> None:
    sweep = OutputSweep({}, inputs=20, unjudged=["row 3"])
    told = agreement_of(sweep, Circumstances()).told
    assert "equal" not in told
    assert told.endswith("; not judged for row 3, where rounding decides")


@pytest.mark.parametrize(("off", "verdict"), [(0, PASSED), (3, REGRESSED)])
def test_boxes_that_are_wrong_where_rounding_makes_one_more_are_regressed(
    off: int, verdict: Verdict
) -> None:
    """One picture of 20 has a score at the threshold; its boxes were not judged at all."""
    limit = np.float32(0.3)
    scores = np.linspace(0.11, 0.91, 17, dtype=np.float32)
    pictures = [scores for _ in range(19)] + [np.append(scores, limit)]

    def boxes(above: Any, picture: Array) -> Outputs:
        (places,) = (picture > above).nonzero()
        return {"boxes": np.repeat(places[:, np.newaxis], 4, 1) + np.float32(1)}

    sweep = OutputSweep({"boxes": Rule()})
    for number, picture in enumerate(pictures):
        ours = boxes(np.nextafter(limit, np.float32(0)), picture)
        if number == 19:
            ours = {"boxes": ours["boxes"] + off}
        near = partial(
            evaluated_outputs.nearby_outputs, lambda each: boxes(limit, each["x"]), {"x": picture}
        )
        sweep.add(boxes(limit, picture), ours, [f"row {number}"], near)
    agreement = agreement_of(sweep, Circumstances())
    assert agreement.verdict is verdict
    told = "not judged for row 19, where rounding" if off == 0 else "(worst: row 19)"
    assert told in agreement.told


@pytest.mark.parametrize(
    "texts",
    [["cat", "grösse", ""], ["Cat", "größe", ""], ["cat ", "größe", ""], ["größe", "cat", ""]],
)
def test_texts_are_equal_or_regressed(texts: list[str]) -> None:
    found = check_outputs(TEXTS, {"y": np.array(texts)}, Tolerance(1.0, 1e9))
    assert (found.verdict, found.ratio) == (REGRESSED, math.inf), "whatever a tolerance says"
    assert check_outputs(TEXTS, {"y": TEXTS["y"].astype("U40")}).verdict is PASSED
    numbers = {"y": np.arange(3)}
    assert (
        check_outputs(TEXTS, numbers).verdict is check_outputs(numbers, TEXTS).verdict is REGRESSED
    )
