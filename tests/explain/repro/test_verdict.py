"""Both sides are run by real agents, and the gate holds what they do against what was expected."""

from __future__ import annotations

import signal
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_mlms.core.arrays import Array
from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.records import Comparison, Verdict
from pytest_mlms.decide.upgrade.decision import compare_rounds
from pytest_mlms.decide.upgrade.figures import Figure
from pytest_mlms.decide.upgrade.output_check import check_outputs
from pytest_mlms.decide.upgrade.round_estimate import RoundSpan
from pytest_mlms.explain.repro.bundle import Bundle, Expectation
from pytest_mlms.explain.repro.verdict import (
    Effort,
    Seen,
    compare_outputs,
    compare_ratio,
    observe,
    observe_side,
    rule_of,
)
from pytest_mlms.measure.evaluate.closeness import Tolerance, differences
from tests.support.bundles import OUTPUTS, bundle_of_matrix, run_of

CRASH = Expectation("crash", "crash", "ERROR", "It crashes.", crash="SIGSEGV")
SLOWER = Expectation("ratio", "latency", "REGRESSED", "", unit="s", tolerance=0.03)
SHORT = Effort(0.02, 60.0, RoundSpan(3, 6))
GENERATOR = np.random.default_rng(3)


def see(folder: Path, expected: Expectation, **code: str) -> Seen:
    return observe(run_of(folder, expected, code), effort=SHORT)


def see_alone(folder: Path, expected: Expectation, code: str, **changes: Any) -> Seen:
    return observe(run_of(folder, expected, {"new": code}, old=None, **changes), effort=SHORT)


def test_outputs_that_differ_are_told_as_the_gate_tells_them(tmp_path: Path) -> None:
    code = "import numpy\nFACTOR = numpy.array([[1, 1], [1, 1.5]], numpy.float32)"
    seen = see(tmp_path, OUTPUTS, new=code)
    assert seen.shows
    assert seen.ratio == pytest.approx(5000)
    assert seen.summary.endswith("on 1 of 2 inputs (worst: row 1): row 1: y[1] 9 -> 13.5")


def test_outputs_that_agree_do_not_show_it(tmp_path: Path) -> None:
    seen = see(tmp_path, OUTPUTS, new="FACTOR = 1.00001")
    assert not seen.shows
    assert "agree" in seen.summary


def test_nan_on_one_side_differs(tmp_path: Path) -> None:
    seen = see(tmp_path, OUTPUTS, new="FACTOR = float('nan')")
    assert seen.shows
    assert "y[0] 6 -> nan" in seen.summary


STEP = """
import numpy
class Step:
    __array_ufunc__ = None
    def __rmul__(self, other):
        return (other {comparison} 6).astype(numpy.float32)
FACTOR = Step()
"""


def test_outputs_that_rounding_decides_are_no_difference_as_for_the_gate(tmp_path: Path) -> None:
    old, new = (STEP.format(comparison=each) for each in (">", ">="))
    seen = see(tmp_path, OUTPUTS, old=old, new=new)
    assert (seen.shows, seen.undecided) == (False, True)
    assert "rounding decides the outputs for too many inputs" in seen.summary


SECOND = """
class Factor:
    calls = 0
    def __rmul__(self, other):
        Factor.calls += 1
        {second}
        return other
    __array_ufunc__ = None
FACTOR = Factor()
"""


def test_an_old_side_that_fails_for_rounded_inputs_is_not_taken_for_the_new_one(
    tmp_path: Path,
) -> None:
    old = SECOND.format(second="assert Factor.calls == 1, 'no such kernel'")
    with pytest.raises(MlmsError, match="the old side can't run rounded inputs.*no such kernel"):
        see(tmp_path, OUTPUTS, old=old, new="FACTOR = 1.5")


def test_a_call_that_rounding_decides_is_not_forgotten_for_one_that_agrees(tmp_path: Path) -> None:
    old = STEP.format(comparison=">")
    new = STEP.format(comparison=">=").replace(
        "return", "self.calls = getattr(self, 'calls', 0) + 1\n        return"
    )
    new = new.replace("(other >= 6)", "(other > 6 if self.calls > 1 else other >= 6)")
    seen = see(tmp_path, OUTPUTS._replace(calls=3), old=old, new=new)
    assert (seen.shows, seen.undecided) == (False, True)


def test_a_crash_is_expected_by_its_signal(tmp_path: Path) -> None:
    seen = see(tmp_path, CRASH, new=f"ENDING = {int(signal.SIGSEGV)}")
    assert seen.shows
    assert "killed by SIGSEGV" in seen.summary


@pytest.mark.parametrize("kind", ["crash", "outputs", "ratio"])
def test_a_side_that_is_killed_decides_nothing(tmp_path: Path, kind: str) -> None:
    """The kernel or a person may kill any process."""
    kill = f"ENDING = {int(signal.SIGKILL)}"
    expected = SLOWER._replace(kind=kind, crash="SIGSEGV")
    seen = see(tmp_path, expected, new=kill)
    assert (seen.shows, seen.undecided) == (False, True)
    assert "killed by SIGKILL" in seen.summary


def test_a_kill_may_be_what_is_expected(tmp_path: Path) -> None:
    kill = f"ENDING = {int(signal.SIGKILL)}"
    assert see_alone(tmp_path, CRASH._replace(crash="SIGKILL"), kill).shows


def test_a_failure_of_another_kind_does_not_show_a_crash(tmp_path: Path) -> None:
    seen = see(tmp_path, CRASH, new="ENDING = 'no such kernel'")
    assert not seen.shows
    assert "in another way (ValueError, not SIGSEGV)" in seen.summary


def test_an_error_of_the_framework_is_expected_by_its_class(tmp_path: Path) -> None:
    expected = CRASH._replace(crash="ValueError")
    assert see(tmp_path, expected, new="ENDING = 'no such kernel'").shows
    assert not see(tmp_path, expected).shows
    assert see_alone(tmp_path, expected, "ENDING = 'no such kernel'").shows
    assert not see_alone(tmp_path, expected, "").shows


@pytest.mark.parametrize(("text", "told"), [("''", ""), (r"'\nno kernel\n'", ": no kernel")])
def test_a_framework_that_can_not_be_imported_is_a_crash_of_its_side(
    tmp_path: Path, text: str, told: str
) -> None:
    expected = CRASH._replace(crash="ImportError")
    for seen in (
        see(tmp_path, expected, new=f"raise ImportError({text})"),
        see_alone(tmp_path, expected, f"raise ImportError({text})"),
    ):
        assert seen.shows
        assert seen.summary.startswith("the new side fails: ")
        assert seen.summary.endswith(f"'hello' raised ImportError{told}")


@pytest.mark.parametrize("kind", ["outputs", "crash", "ratio"])
def test_an_old_side_that_fails_can_show_nothing(tmp_path: Path, kind: str) -> None:
    expected = SLOWER._replace(kind=kind)
    with pytest.raises(MlmsError, match=r"'\w+' raised ValueError: no such kernel"):
        see(tmp_path, expected, old="ENDING = 'no such kernel'", new="ENDING = 'no such kernel'")


def test_one_side_is_held_against_recorded_outputs(tmp_path: Path) -> None:
    reference = {"y": np.array([[6, 9], [6, 9]], np.float32)}
    answers = OUTPUTS._replace(kind="answers")
    assert see_alone(tmp_path, OUTPUTS, "FACTOR = 2", reference=reference).shows
    assert not see_alone(tmp_path, answers, "FACTOR = 2", reference=reference).shows
    assert see_alone(tmp_path, answers, "", reference=reference).shows


def test_wrong_answers_without_a_value_are_not_shown(tmp_path: Path) -> None:
    answers = OUTPUTS._replace(kind="answers")
    empty = {"y": np.zeros((0, 2), np.float32)}
    inputs = {"x": np.ones((0, 3), np.float32)}
    assert not see_alone(tmp_path, answers, "", reference=empty, inputs=inputs).shows


def test_a_slower_side_is_found_in_rounds(tmp_path: Path) -> None:
    told: list[str] = []
    code = {"old": "SECONDS = 2e-3", "new": "SECONDS = 8e-3"}
    seen = observe(run_of(tmp_path, SLOWER, code), told.append, SHORT)
    assert seen.shows
    assert seen.low is not None
    assert seen.low > 1.03
    assert "latency is worse by more than 3 %: ×" in seen.summary
    assert told[0].startswith("after 1 round: latency ")
    assert len(told) == 6


def test_a_faster_side_does_not_show_a_regression(tmp_path: Path) -> None:
    seen = see(tmp_path, SLOWER, old="SECONDS = 2e-3", new="SECONDS = 1e-3")
    assert not seen.shows
    assert "latency is within 3 %" in seen.summary


def test_too_few_rounds_leave_a_ratio_undecided(tmp_path: Path) -> None:
    code = {"old": "SECONDS = 2e-3", "new": "SECONDS = 8e-3"}
    seen = observe(run_of(tmp_path, SLOWER, code), effort=SHORT._replace(budget=0.0))
    assert (seen.shows, seen.undecided) == (False, True)
    assert "stays undecided" in seen.summary
    assert "1 round); needs 3 rounds, had 1" in seen.summary


def test_a_quantity_that_is_not_measured_here_is_told_without_a_ratio(tmp_path: Path) -> None:
    seen = see(tmp_path, SLOWER._replace(quantity="energy_per_input"))
    assert (seen.shows, seen.undecided) == (False, True)
    assert seen.summary.startswith("energy_per_input can't be compared: ")
    assert "nan" not in seen.summary


def test_a_side_that_fails_is_not_slower(tmp_path: Path) -> None:
    seen = see(tmp_path, SLOWER, new="ENDING = 'no such kernel'")
    assert (seen.shows, seen.undecided) == (False, False)
    assert "the new side fails: " in seen.summary


def test_one_side_is_held_against_its_limit(tmp_path: Path) -> None:
    expected = Expectation("limit", "latency_p50", "FAILED", "", unit="s", limit=5e-4)
    assert see_alone(tmp_path, expected, "SECONDS = 2e-3").shows
    seen = see_alone(tmp_path, expected._replace(limit=1.0, scenario="offline"), "SECONDS = 2e-3")
    assert not seen.shows
    assert not seen.undecided


@pytest.mark.slow
def test_a_failure_at_the_exit_is_seen_there(tmp_path: Path) -> None:
    at_exit = "import atexit, os; atexit.register(os.kill, os.getpid(), 6)"
    expected = CRASH._replace(crash="SIGABRT", at_exit=True)
    seen = see(tmp_path, expected, new=at_exit)
    assert seen.shows
    assert "killed by SIGABRT" in seen.summary
    assert see_alone(tmp_path, expected, at_exit).shows
    assert not see(tmp_path, expected).shows
    of_both = see(tmp_path, expected, old=at_exit, new=at_exit)
    assert not of_both.shows
    assert of_both.summary == "of 4 exits of each side the new one failed in 4, the old one in 4"
    in_a_call = see(tmp_path, expected._replace(at_exit=False), new=at_exit)
    assert not in_a_call.shows
    assert "in another way (SIGABRT at its exit, not SIGABRT)" in in_a_call.summary


@pytest.mark.parametrize("sides", [2, 1])
def test_a_failure_in_a_call_is_none_at_the_exit(tmp_path: Path, sides: int) -> None:
    expected = CRASH._replace(crash="SIGABRT", at_exit=True)
    code = f"ENDING = {int(signal.SIGABRT)}"
    seen = see(tmp_path, expected, new=code) if sides == 2 else see_alone(tmp_path, expected, code)
    assert not seen.shows
    assert "in another way (SIGABRT, not SIGABRT at its exit)" in seen.summary


EVERY_THIRD = """
import atexit, os
def end():
    with open({path!r}, 'a+') as file:
        file.write('.')
        exits = file.tell()
    if exits % 3 == 1:
        os.kill(os.getpid(), 6)
atexit.register(end)
"""


@pytest.mark.slow
def test_a_part_of_the_exits_that_may_be_chance_leaves_it_undecided(tmp_path: Path) -> None:
    """The first seven exits, of which three fail; without a budget there are no more."""
    code = EVERY_THIRD.format(path=str(tmp_path / "exits"))
    run = run_of(tmp_path, CRASH._replace(crash="SIGABRT", at_exit=True), {"new": code})
    seen = observe(run, effort=SHORT._replace(budget=0.0))
    assert (seen.shows, seen.undecided) == (False, True)
    assert seen.summary.startswith("of 7 exits of each side B failed in 3, A in 0, which may be")


@pytest.mark.slow
def test_a_rare_failure_at_the_exit_is_waited_for_as_long_as_it_takes(tmp_path: Path) -> None:
    code = EVERY_THIRD.format(path=str(tmp_path / "exits")).replace("% 3 == 1", "== 6")
    expected = CRASH._replace(crash="SIGABRT", at_exit=True)
    assert not see_alone(tmp_path, expected, code).shows
    (tmp_path / "exits").unlink()
    assert see_alone(tmp_path, expected._replace(calls=6), code).shows


def test_outputs_that_are_other_ones_now_and_then_are_seen_in_as_many_calls(tmp_path: Path) -> None:
    code = """
class Factor:
    calls = 0
    def __rmul__(self, other):
        Factor.calls += 1
        return other * (1.5 if Factor.calls % 7 == 0 else 1)
    __array_ufunc__ = None
FACTOR = Factor()
"""
    assert not see(tmp_path, OUTPUTS, new=code).shows
    seen = see(tmp_path, OUTPUTS._replace(calls=28), new=code)
    assert seen.shows
    assert seen.ratio == pytest.approx(5000)


def test_one_of_two_sides_alone_runs_as_expected_or_not(tmp_path: Path) -> None:
    run = run_of(tmp_path, CRASH._replace(crash="ValueError"), {"new": "ENDING = 'no kernel'"})
    assert observe_side(run, "b").shows
    seen = observe_side(run, "a")
    assert (seen.shows, seen.summary) == (True, "the old side runs, and gives y float32 [2, 2]")
    outputs = run_of(tmp_path, OUTPUTS, {"new": "ENDING = 'no kernel'"})
    seen = observe_side(outputs, "b")
    assert not seen.shows
    assert "the new side fails: 'predict' raised ValueError: no kernel" in seen.summary


def bundle(tmp_path: Path, **fields: Any) -> Bundle:
    return bundle_of_matrix(tmp_path, expected=OUTPUTS._replace(**fields))


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "float64"])
def test_the_verdict_on_outputs_is_that_of_an_upgrade(tmp_path: Path, dtype: str) -> None:
    reference = (100 * GENERATOR.normal(size=(4, 3, 5))).astype(dtype)
    ours = reference + np.array(GENERATOR.normal(size=(4, 3, 5)) * 3).astype(dtype)
    found = compare_outputs(bundle(tmp_path), {"y": reference}, {"y": ours})
    of_upgrade = check_outputs({"y": reference}, {"y": ours})
    assert repr(found.but(told="")) == repr(of_upgrade.but(told=""))  # NaN is no equal of itself


def test_a_tolerance_is_that_of_an_agreement(tmp_path: Path) -> None:
    reference = GENERATOR.normal(size=(4, 5))
    ours = reference + 0.01
    of_agreement = bundle(tmp_path, rtol=0.01, atol=0.001)
    found = compare_outputs(of_agreement, {"y": reference}, {"y": ours})
    expected = differences(ours, reference, Tolerance(0.01, 0.001)).deviation
    assert found.ratio == pytest.approx(expected.max())


@pytest.mark.parametrize("fields", [{"unlike": -1}, {"unlike": -2}, {"share": 0.01}])
def test_values_are_like_those_that_the_item_took_for_like(
    tmp_path: Path, fields: dict[str, Any]
) -> None:
    boxes = GENERATOR.uniform(0, 640, (2, 5, 4))
    reference = np.concatenate([boxes, GENERATOR.uniform(0, 1, (2, 5, 4))], 2)
    ours = reference + np.array([0] * 4 + [0.05] * 4)  # wrong scores beside boxes in pixels
    of_boxes = bundle(tmp_path, rules={"y": fields})
    rule = rule_of(of_boxes.expected, "y")
    found = compare_outputs(of_boxes, {"y": reference}, {"y": ours})
    assert found.ratio == pytest.approx(rule.compare(ours, reference).largest)


@pytest.mark.parametrize(
    ("ours", "reference"),
    [
        (np.array(3, np.float32), np.array(2, np.float32)),
        (np.ones(3), np.ones(4)),
        (np.ones(3), np.ones(3, np.float32)),
        (np.array([[2**53, 2**53 + 1]]), np.array([[2**53, 2**53]])),
        (np.array([True, False]), np.array([True, True])),
    ],
)
def test_parts_of_models_have_outputs_of_any_form(
    tmp_path: Path, ours: Array, reference: Array
) -> None:
    whole = bundle(tmp_path)
    assert compare_outputs(whole, {"y": reference}, {"y": ours}).verdict is Verdict.REGRESSED
    assert compare_outputs(whole, {"y": reference}, {"y": reference}).verdict is Verdict.PASSED


def test_an_output_that_the_item_does_not_name_is_not_compared(tmp_path: Path) -> None:
    ours = {"y": np.ones(3), "drawn": np.zeros(3)}
    reference = {"y": np.ones(3), "drawn": np.ones(3)}
    whole, named = bundle(tmp_path), bundle(tmp_path, rules={"y": {}})
    assert compare_outputs(whole, reference, ours).verdict is Verdict.REGRESSED
    assert compare_outputs(named, reference, ours).verdict is Verdict.PASSED


def test_the_verdict_over_rounds_is_that_of_an_upgrade(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The figures of its rounds, judged as ``mlms judge`` would, give the same comparison."""
    runs = import_module("pytest_mlms.decide.upgrade.run")
    judged: list[tuple[Any, ...]] = []

    def noted(*words: Any) -> list[Comparison]:
        judged.append(words)
        return compare_rounds(*words)

    monkeypatch.setattr(runs, "compare_rounds", noted)
    code = {"old": "SECONDS = 2e-3", "new": "SECONDS = 8e-3"}
    found = compare_ratio(run_of(tmp_path, SLOWER, code), effort=SHORT)
    rounds, tolerances, gates, span, orders = judged[-1]
    assert (tolerances, gates, span) == ({"latency": 0.03}, ("latency",), SHORT.rounds)
    assert isinstance(rounds[0]["latency"], Figure)
    again = compare_rounds(rounds, tolerances, gates, span, orders)
    assert found in again
