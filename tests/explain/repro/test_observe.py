"""Both sides are run by real agents, and what they do is held against what was expected."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_mlms.explain.repro.bundle import Expectation
from pytest_mlms.explain.repro.replay import rounds
from pytest_mlms.explain.repro.replay.observe import observe
from pytest_mlms.explain.repro.replay.sides import NEW, Sides
from pytest_mlms.explain.repro.replay.task import CannotRun, Seen
from tests.support.bundles import OUTPUTS, launches, task

CRASH = Expectation("crash", "crash", "ERROR", "It crashes.", crash="SIGSEGV")


def see(folder: Path, expected: Expectation, **code: str) -> Seen:
    with Sides(launches(folder, **code)) as sides:
        return observe(task(folder, expected), sides)


def test_outputs_that_differ_are_found_with_their_place(tmp_path: Path) -> None:
    code = "import numpy\nFACTOR = numpy.array([[1, 1], [1, 1.5]], numpy.float32)"
    seen = see(tmp_path, OUTPUTS, new=code)
    assert seen.shows
    assert (seen.output, seen.place) == ("y", (1, 1))
    assert seen.ratio == pytest.approx(5000)
    assert "y[1,1]: 13.5 instead of 9" in seen.summary


def test_outputs_that_agree_do_not_show_it(tmp_path: Path) -> None:
    seen = see(tmp_path, OUTPUTS, new="FACTOR = 1.00001")
    assert not seen.shows
    assert "outputs agree" in seen.summary


def test_nan_on_one_side_differs(tmp_path: Path) -> None:
    seen = see(tmp_path, OUTPUTS, new="FACTOR = float('nan')")
    assert seen.shows
    assert "'y' has NaN or infinity" in seen.summary


def test_a_crash_is_expected_by_its_signal(tmp_path: Path) -> None:
    seen = see(tmp_path, CRASH, new=f"ENDING = {int(signal.SIGSEGV)}")
    assert seen.shows
    assert "was killed by SIGSEGV" in seen.summary


def test_a_failure_of_another_kind_does_not_show_a_crash(tmp_path: Path) -> None:
    seen = see(tmp_path, CRASH, new="ENDING = 'no such kernel'")
    assert not seen.shows
    assert "in another way (ValueError, not SIGSEGV)" in seen.summary


def test_an_error_of_the_framework_is_expected_by_its_class(tmp_path: Path) -> None:
    expected = CRASH._replace(crash="ValueError")
    assert see(tmp_path, expected, new="ENDING = 'no such kernel'").shows
    assert not see(tmp_path, expected).shows


@pytest.mark.parametrize(("text", "told"), [("''", ""), (r"'\nno kernel\n'", ": no kernel")])
def test_an_error_without_a_text_or_with_an_empty_first_line_is_told_without_a_gap(
    tmp_path: Path, text: str, told: str
) -> None:
    expected = Expectation("crash", "crash", "ERROR", "It fails.", crash="ImportError")
    seen = see(tmp_path, expected, new=f"raise ImportError({text})")
    assert seen.shows
    assert seen.summary == f"the new side fails: ImportError{told}"


def test_an_old_side_that_fails_can_show_nothing(tmp_path: Path) -> None:
    with pytest.raises(CannotRun, match="the old side can't run the model here: ValueError"):
        see(tmp_path, OUTPUTS, old="ENDING = 'no such kernel'")


def test_a_side_that_crashed_is_started_again(tmp_path: Path) -> None:
    found = launches(tmp_path, new=f"ENDING = {int(signal.SIGKILL)}")
    with Sides(found) as sides:
        first = observe(task(tmp_path, CRASH._replace(crash="SIGKILL")), sides)
        second = observe(task(tmp_path, CRASH._replace(crash="SIGKILL")), sides)
    assert first.shows
    assert second.shows


def test_one_side_is_held_against_recorded_outputs(tmp_path: Path) -> None:
    reference = {"y": np.array([[6, 9], [6, 9]], np.float32)}
    found = launches(tmp_path, new="FACTOR = 2")
    del found["old"]
    with Sides(found) as sides:
        assert observe(task(tmp_path, OUTPUTS, reference=reference), sides).shows
        answers = OUTPUTS._replace(kind="answers")
        assert not observe(task(tmp_path, answers, reference=reference), sides).shows


def test_a_slower_side_is_found_in_turns(tmp_path: Path) -> None:
    expected = Expectation("ratio", "latency", "REGRESSED", "", unit="s", tolerance=0.03)
    seen = see(tmp_path, expected, old="SECONDS = 2e-3", new="SECONDS = 8e-3")
    assert seen.shows
    assert seen.low is not None
    assert seen.low > 1.03


def test_a_faster_side_does_not_show_a_regression(tmp_path: Path) -> None:
    expected = Expectation("ratio", "latency", "REGRESSED", "", unit="s", tolerance=0.03)
    seen = see(tmp_path, expected, old="SECONDS = 1e-3", new="SECONDS = 5e-4")
    assert not seen.shows
    assert "latency is within 3 %" in seen.summary


def test_one_side_is_held_against_its_limit(tmp_path: Path) -> None:
    expected = Expectation("limit", "latency_p50", "FAILED", "", unit="s", limit=5e-4)
    with Sides({NEW: launches(tmp_path, new="SECONDS = 2e-3")[NEW]}) as sides:
        assert observe(task(tmp_path, expected), sides).shows
        assert not observe(task(tmp_path, expected._replace(limit=1.0)), sides).shows


def test_a_failure_at_the_exit_is_seen_there(tmp_path: Path) -> None:
    at_exit = "import atexit, os; atexit.register(os.kill, os.getpid(), 6)"
    expected = CRASH._replace(crash="SIGABRT", at_exit=True)
    seen = see(tmp_path, expected, new=at_exit)
    assert seen.shows
    assert "was killed by SIGABRT" in seen.summary
    assert not see(tmp_path, expected).shows
    assert not see(tmp_path, expected._replace(crash="hang"), new=at_exit).shows
    with pytest.raises(CannotRun, match="the old side can't run the model here: was killed"):
        see(tmp_path, expected, old=at_exit, new=at_exit)


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


def test_a_ratio_that_stays_open_is_undecided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures = iter([1.0, 1.0, 1.0, 3.0] * 6)
    monkeypatch.setattr(rounds, "_round", lambda *_: (next(figures), next(figures)))
    expected = Expectation("ratio", "latency", "REGRESSED", "", unit="s", tolerance=0.03)
    seen = see(tmp_path, expected)
    assert (seen.shows, seen.undecided) == (False, True)
    assert "stays undecided" in seen.summary


@pytest.mark.parametrize(
    ("tolerance", "fields", "shows"),
    [
        (0.2, {}, True),
        (0.2, {"base": 0.05}, False),
        (0.2, {"least_change": 4e-3}, False),
        (0.2, {"least_change": 2e-3}, True),
    ],
)
def test_a_change_matters_as_much_as_to_the_gate(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    tolerance: float,
    fields: dict[str, Any],
    shows: bool,
) -> None:
    monkeypatch.setattr(rounds, "_round", lambda *_: (10e-3, 13e-3))
    expected = Expectation("ratio", "load_time", "REGRESSED", "", unit="s", tolerance=tolerance)
    assert see(tmp_path, expected._replace(**fields)).shows == shows


def test_wrong_answers_without_a_value_are_not_shown(tmp_path: Path) -> None:
    reference = {"y": np.zeros((0, 2), np.float32)}
    found = launches(tmp_path)
    del found["old"]
    inputs = {"x": np.ones((0, 3), np.float32)}
    with Sides(found) as sides:
        answers = OUTPUTS._replace(kind="answers")
        seen = observe(task(tmp_path, answers, reference=reference, inputs=inputs), sides)
    assert not seen.shows
    assert seen.summary == "there are no outputs to compare"


def test_memory_of_a_gpu_is_compared_by_a_counter_that_both_sides_have() -> None:
    process = rounds.Process([], 0.0, 0.0, 0.0, 0.0, {"pool": 100, "NVML": 600})
    sides = rounds._by_one_counter(
        {"old": process, "new": process._replace(device_bytes={"NVML": 700})}
    )
    assert [rounds.figure_of(each, "device_memory", 1) for each in sides.values()] == [600, 700]
    apart = rounds._by_one_counter({"old": process, "new": process._replace(device_bytes={})})
    with pytest.raises(CannotRun, match="nothing tells the memory of the device here"):
        rounds.figure_of(apart["old"], "device_memory", 1)
