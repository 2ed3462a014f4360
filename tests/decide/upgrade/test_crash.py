"""Candidates that fail where the baseline does not, with hand-written fakes of agents."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from pytest_mlms.core.errors import AgentError, Crashed, InvalidRun, MlmsError, Unavailable
from pytest_mlms.core.records import Verdict
from pytest_mlms.decide.upgrade.advice import advice_on
from pytest_mlms.decide.upgrade.crash import Exits, crash_comparison, crash_or
from pytest_mlms.decide.upgrade.explanation import explain_upgrade
from pytest_mlms.decide.upgrade.result import UpgradeResult
from pytest_mlms.decide.upgrade.rounds import SideName
from pytest_mlms.measure.agent.predictor import Predictor
from tests.support.labour import LabourUpgrade
from tests.support.upgrades import setting


class Leaving:
    """A predictor whose agent ends with a problem, "" for none; it notes the seconds it has."""

    def __init__(self, problem: str) -> None:
        self.agent = self
        self.problem = problem
        self.left = False
        self.seconds: list[float] = []

    def leave(self, seconds: float) -> None:
        self.left = True

    def end_of_leaving(self, seconds: float) -> str:
        assert self.left
        self.seconds.append(seconds)
        return self.problem


def end(exits: Exits, a: str, b: str) -> dict[SideName, Leaving]:
    sides: dict[SideName, Leaving] = {"a": Leaving(a), "b": Leaving(b)}
    exits.end(cast("dict[SideName, Predictor]", sides))
    return sides


def test_an_exit_that_fails_twice_on_one_side_is_a_crash() -> None:
    exits = Exits()
    end(exits, "", "SIGABRT")
    end(exits, "", "")
    with pytest.raises(Crashed, match="SIGABRT"):
        end(exits, "", "SIGABRT")


def test_one_exit_that_fails_on_the_baseline_hides_no_candidate_that_always_does() -> None:
    """It PASSED without a word: what happens once may happen to the baseline, too."""
    exits = Exits()
    end(exits, "SIGABRT", "SIGABRT")
    for _ in range(5):
        end(exits, "", "SIGABRT")
    with pytest.raises(Crashed, match="SIGABRT"):
        end(exits, "", "SIGABRT")


def test_an_exit_of_the_candidate_is_not_waited_for_where_that_of_the_baseline_failed() -> None:
    assert end(Exits(), "SIGABRT", "")["b"].seconds == []


def test_exits_that_fail_on_both_sides_say_nothing() -> None:
    exits = Exits()
    for _ in range(3):
        end(exits, "SIGABRT", "SIGABRT")
    end(exits, "", "SIGABRT")


def test_a_process_has_ten_seconds_to_end() -> None:
    sides = end(Exits(), "", "")
    assert (sides["a"].seconds, sides["b"].seconds) == ([10], [10])


def of_side(error: MlmsError, side: str = "b") -> MlmsError:
    error.side = side
    return error


@pytest.mark.parametrize(
    "error",
    [
        of_side(AgentError("it ended"), side="a"),
        AgentError("of no side"),
        of_side(InvalidRun("another device")),
        of_side(Unavailable("no device")),
    ],
)
def test_errors_that_are_no_failures_of_the_candidate_stay(error: MlmsError) -> None:
    assert crash_or(error, cast(Any, None), ()) is error


@pytest.mark.parametrize("order", [("a", "b"), ("b", "a")])
def test_models_that_fit_on_a_gpu_one_at_a_time_are_no_crash(
    order: Sequence[SideName], tmp_path: Path
) -> None:
    upgrade = LabourUpgrade(tmp_path)
    upgrade.device = "cuda:0"
    settings = {"events": 0.001, "room": tmp_path / "room"}
    case = upgrade.case(settings, {**settings, "version": "2.0"})
    with pytest.raises(MlmsError) as raised, upgrade._open(case, order, ()):
        pass
    assert raised.value.side == order[1]
    sides = {"a": upgrade._spec(case.baseline), "b": upgrade._spec(case)}
    found = crash_or(raised.value, sides, ())
    assert isinstance(found, InvalidRun)
    assert "both sides have their models on cuda:0 at once, and don't fit" in str(found)
    assert "CUDA out of memory" in str(found)


def test_a_batch_size_on_which_both_sides_fail_is_no_crash(tmp_path: Path) -> None:
    upgrade = LabourUpgrade(tmp_path)
    upgrade.run({"fault": "refuses"}, {"fault": "dies"})
    assert upgrade.result.verdict is not Verdict.REGRESSED, upgrade.text
    (tmp_path / "other").mkdir()
    upgrade = LabourUpgrade(tmp_path / "other")
    with pytest.raises(MlmsError, match="ended while it did .predict."):
        upgrade.run({}, {"fault": "dies"})


@pytest.mark.parametrize("fault", ["refuses", "empty"])
def test_a_batch_on_which_both_sides_fail_is_no_crash_though_the_first_one_works(
    tmp_path: Path, fault: str
) -> None:
    upgrade = LabourUpgrade(tmp_path)
    spec = upgrade._spec(upgrade.case({"fault": fault}, {"fault": "dies"}).baseline)
    batches = [{"image": np.zeros((size, 1, 8, 8), np.float32)} for size in (1, 2, 3)]
    error = of_side(AgentError("it ended"))
    found = crash_or(error, {"a": spec}, batches)
    assert not isinstance(found, Crashed)
    assert "the baseline old fails, too: " in str(found)
    assert isinstance(crash_or(error, {"a": spec}, batches[:2]), Crashed)


CRASHED = UpgradeResult(comparisons=[crash_comparison("candidate new: SIGSEGV\nits log ends:")])


def test_a_crash_is_a_regression_with_its_whole_reason_and_the_command() -> None:
    made = setting(
        framework="onnxruntime",
        point="m.yaml::test_upgrade[cpu-b8]",
        changed_packages=["numpy 2.0.0 → 1.0.0", "onnxruntime 1.22.0 → 1.23.0"],
    )
    text = explain_upgrade(CRASHED, made)
    assert CRASHED.verdict is Verdict.REGRESSED
    assert text.startswith("new (B) against old (A): REGRESSED (crash), B fails where A does not\n")
    assert "crash: candidate new: SIGSEGV\n" in text
    assert "\n    its log ends:" in text
    assert "numpy 2.0.0 → 1.0.0, onnxruntime 1.22.0 → 1.23.0" in text
    assert "--good onnxruntime==1.22.0 --bad onnxruntime==1.23.0 --quantity crash" in text


def test_a_crash_whose_packages_are_not_known_has_no_command() -> None:
    assert advice_on(CRASHED, setting(framework="onnxruntime")) == []


def test_a_crash_is_written_and_read(tmp_path: Path) -> None:
    from pytest_mlms.core.serialization import to_plain
    from pytest_mlms.explain.bisect.judgement import judgement_of

    line = {
        "verdict": "REGRESSED",
        "stack": {"name": "new"},
        "comparisons": to_plain(CRASHED.comparisons),
    }
    judged = judgement_of(line, None)
    assert (judged.quantity, judged.verdict, judged.reason) == ("crash", "CRASHED", "SIGSEGV")
    assert "bisect --quantity crash first: SIGSEGV" in judgement_of(line, "latency").reason
