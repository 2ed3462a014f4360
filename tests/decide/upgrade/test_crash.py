"""Candidates that fail where the baseline does not, with hand-written fakes of agents."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, cast
from unittest.mock import Mock

import numpy as np
import pytest
from mlms_predictors._run.servers import ModelReplacedError

from pytest_mlms.core.errors import AgentError, Crashed, InvalidRun, MlmsError, Unavailable
from pytest_mlms.core.records import Verdict
from pytest_mlms.decide.upgrade.advice import advice_on
from pytest_mlms.decide.upgrade.crash import ExitCounts, Exits, crash_comparison, crash_or
from pytest_mlms.decide.upgrade.criteria import Criteria
from pytest_mlms.decide.upgrade.explanation import explain_upgrade
from pytest_mlms.decide.upgrade.interleave_plan import InterleavePlan
from pytest_mlms.decide.upgrade.labels import told_forms
from pytest_mlms.decide.upgrade.output_check import OutputFindings
from pytest_mlms.decide.upgrade.result import UpgradeResult
from pytest_mlms.decide.upgrade.rounds import SIDES, SideName
from pytest_mlms.decide.upgrade.run import UpgradeRun
from pytest_mlms.measure.agent.predictor import Predictor
from pytest_mlms.measure.agent.process import Refused
from tests.support.labour import LabourUpgrade, Sink
from tests.support.upgrades import ROUND_RECORD, alike, changed, result_of, setting


class Leaving:
    """A predictor whose agent ends with a problem, "" for none; it notes the seconds it has."""

    def __init__(self, problem: str) -> None:
        self.agent = self
        self.problem = problem
        self.left = False
        self.was_ended = False
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


def test_exits_that_fail_on_one_side_only_are_a_crash_after_six() -> None:
    exits = Exits()
    for _ in range(5):
        end(exits, "", "SIGABRT")
    with pytest.raises(Crashed, match="SIGABRT\nof 6 exits of each side B failed in 6, A in 0"):
        end(exits, "", "SIGABRT")


def test_two_exits_of_a_candidate_that_fail_are_no_crash_yet() -> None:
    """Two were enough once: 16 % of items were REGRESSED whose sides both fail in one of ten."""
    exits = Exits()
    end(exits, "", "SIGABRT")
    assert exits.are_suspect
    for _ in range(5):
        end(exits, "", "")
    end(exits, "", "SIGABRT")
    told = exits.open_comparison()
    assert told is not None
    assert (told.verdict, told.gate) == (Verdict.INCONCLUSIVE, True)
    assert told.lacking == (
        "of 7 exits of each side B failed in 2, A in 0, which may be chance; "
        "a larger --mlms-budget may decide it: SIGABRT"
    )


def test_a_candidate_that_fails_seldom_is_told_and_leaves_the_verdict() -> None:
    """The table of a run had no word of it."""
    exits = Exits()
    end(exits, "", "SIGABRT")
    for _ in range(6):
        end(exits, "", "")
    told = exits.open_comparison()
    assert not exits.are_suspect
    assert told is not None
    assert not told.gate
    lacking = "of 7 exits of each side B failed in 1, A in 0, which may be chance: SIGABRT"
    assert told_forms([told]) == [[f"undecided: crash: {lacking}"]]
    result = result_of(alike(0.0), ("latency",))
    result = replace(result, comparisons=[*result.comparisons, told], complete=True)
    assert result.verdict is Verdict.PASSED
    assert advice_on(result, setting()) == []
    assert "PASSED, but see crash" in explain_upgrade(result, setting())
    end(exits, "SIGABRT", "")
    assert exits.open_comparison() is None


@pytest.mark.parametrize("of_baseline", [1, 2, 3])
def test_exits_that_fail_on_the_baseline_hide_no_candidate_that_always_does(
    of_baseline: int,
) -> None:
    """It PASSED without a word where the baseline failed twice."""
    exits = Exits()
    failed = 0
    with contextlib.suppress(Crashed):
        for failed in range(30):
            end(exits, "SIGABRT" if failed < of_baseline else "", "SIGABRT")
    assert failed < 20


def test_an_exit_of_the_candidate_has_no_longer_than_one_of_the_baseline_that_fails() -> None:
    (seconds,) = end(Exits(), "SIGABRT", "")["b"].seconds
    assert seconds <= 10


def test_exits_that_fail_on_both_sides_say_nothing_and_are_not_waited_for_for_ever() -> None:
    exits = Exits()
    for _ in range(4):
        end(exits, "SIGABRT", "SIGABRT")
    assert not exits.are_suspect
    assert not end(exits, "", "SIGABRT")["b"].left
    assert exits.open_comparison() is None


@pytest.mark.parametrize("side", SIDES)
def test_a_process_that_was_ended_before_its_exit_counts_as_none(side: SideName) -> None:
    """It counted as an exit that was fine, and the other side's might fail."""
    sides: dict[SideName, Leaving] = {"a": Leaving(""), "b": Leaving("SIGABRT")}
    sides[side].was_ended = True
    exits = Exits()
    exits.end(cast("dict[SideName, Predictor]", sides))
    assert exits.counts.exits == 0


def test_processes_that_only_end_hide_no_exits_that_fail_after_many_calls() -> None:
    exits = Exits()
    for _ in range(5):
        end(exits, "", "SIGABRT")
        exits.only_end = True
        end(exits, "", "")
        end(exits, "", "")
        exits.only_end = False
    with pytest.raises(Crashed, match="of 16 exits of each side B failed in 6, A in 0"):
        end(exits, "", "SIGABRT")


@pytest.mark.parametrize(("failed", "rounds"), [(2, 2), (3, 3), (3, 6), (5, 6)])
def test_a_candidate_that_fails_after_the_calls_of_rounds_only_is_open(
    failed: int, rounds: int
) -> None:
    """It PASSED once so many further processes had ended that less than a sixth failed."""
    exits = Exits()
    for index in range(rounds):
        end(exits, "", "SIGABRT" if index < failed else "")
    exits.only_end = True
    while exits.are_suspect:
        end(exits, "", "")
    told = exits.open_comparison()
    assert told is not None
    assert told.gate
    assert f" (of {rounds} after the calls of rounds in {failed}, A in 0), which" in told.lacking


@pytest.mark.parametrize(("share", "most"), [(0.02, 0.002), (0.1, 0.01), (0.2, 0.02)])
def test_sides_that_fail_equally_often_are_seldom_open(share: float, most: float) -> None:
    random = np.random.default_rng(2)
    assert sum(is_open(random, share) for _ in range(1000)) <= most * 1000


def is_open(random: np.random.Generator, share: float) -> bool:
    exits = Exits()
    rounds = 0
    while rounds < 6 or exits.are_suspect:
        exits.only_end = rounds == 6
        rounds += not exits.only_end
        with contextlib.suppress(Crashed):
            end(exits, *("SIGABRT" if each else "" for each in random.random(2) < share))
    told = exits.open_comparison()
    return told is not None and told.gate


@pytest.mark.parametrize("share", [0.02, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8])
def test_sides_that_fail_equally_often_regress_in_less_than_one_item_of_1000(share: float) -> None:
    """Those of the rounds are judged by themselves, too."""
    assert chance_of_a_crash(share, exits=40) + chance_of_a_crash(share, exits=12) < 0.001


def chance_of_a_crash(share: float, exits: int) -> float:
    """Return how probable it is that exits of equal sides show more failures at one of all looks."""
    found = 0.0
    left = {(0, 0): 1.0}
    for count in range(1, exits + 1):
        later: dict[tuple[int, int], float] = {}
        for (a, b), probability in left.items():
            for more_a, more_b in itertools.product((0, 1), repeat=2):
                chance = math.prod(share if each else 1 - share for each in (more_a, more_b))
                place = a + more_a, b + more_b
                later[place] = later.get(place, 0.0) + probability * chance
        for place in list(later):
            if ExitCounts(count, *place).shows_more:
                found += later.pop(place)
        left = later
    return found


@pytest.mark.parametrize(
    ("a", "b", "least"), [(0, 1, 1), (0, 0.5, 0.9), (0.1, 1, 0.98), (0.3, 1, 0.75)]
)
def test_a_candidate_that_fails_always_or_every_other_time_is_found(
    a: float, b: float, least: float
) -> None:
    assert share_of_crashes(a, b, items=300) >= least


def share_of_crashes(a: float, b: float, items: int) -> float:
    """Return the share of items REGRESSED by six rounds and what else ends, at these shares."""
    random = np.random.default_rng(1)
    return sum(is_crash(random, a, b) for _ in range(items)) / items


def is_crash(random: np.random.Generator, a: float, b: float) -> bool:
    exits = Exits()
    rounds = 0
    while rounds < 6 or exits.are_suspect:
        exits.only_end = exits.always_differ or rounds == 6
        rounds += not exits.only_end
        failed = random.random(2) < (a, b)
        try:
            end(exits, *("SIGABRT" if each else "" for each in failed))
        except Crashed:
            return True
    return False


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


@pytest.mark.parametrize("side", ["a", "b"])
def test_a_model_that_was_replaced_on_its_server_is_no_crash(side: str) -> None:
    error = of_side(Refused("it is of version 2", ModelReplacedError.__name__), side)
    found = crash_or(error, cast(Any, None), ())
    assert isinstance(found, InvalidRun)
    assert str(found) == "it is of version 2"


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


def test_a_candidate_that_aborts_at_each_exit_has_regressed_after_two_rounds(
    tmp_path: Path,
) -> None:
    upgrade = LabourUpgrade(tmp_path)
    upgrade.exits = Exits()
    result = upgrade.run({}, {"fault": "abort"})
    assert result.crashed
    assert len(result.rounds) == 2
    assert upgrade.exits.of_rounds.exits == 2
    assert "failed at its exit: killed by SIGABRT" in upgrade.text
    assert "of 6 exits of each side B failed in 6, A in 0" in upgrade.text


def test_exits_that_failed_once_are_told_with_the_result(tmp_path: Path) -> None:
    upgrade = LabourUpgrade(tmp_path)
    upgrade.exits = Exits()
    upgrade.exits.counts.add(a=False, b=True)
    result = upgrade.run({}, {"version": 2})
    (told,) = [one for one in result.comparisons if one.quantity == "crash"]
    assert told.verdict is Verdict.INCONCLUSIVE
    assert not told.gate
    assert upgrade.exits.counts.exits == 7, "after one more it is less than a sixth"
    assert "of 7 exits of each side B failed in 1, A in 0, which may be chance" in upgrade.text


def test_what_is_known_of_exits_is_kept_at_ctrl_c(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line of an upgrade that was interrupted had no word of them."""
    upgrade = LabourUpgrade(tmp_path)
    upgrade.exits = Exits()
    upgrade.exits.counts.add(a=False, b=True)

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    interleave = import_module("pytest_mlms.decide.upgrade.interleave")
    monkeypatch.setattr(interleave._Rounds, "_end_more", interrupt)
    with pytest.raises(KeyboardInterrupt):
        upgrade.run({}, {"version": 2})
    (told,) = [one for one in upgrade.sink.fields["comparisons"] if one.quantity == "crash"]
    assert told.gate
    assert upgrade.sink.fields["complete"] is False
    assert len(upgrade.sink.fields["rounds"]) >= 3


def test_open_exits_blame_no_load_that_was_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exits = Exits()
    for failure in ("SIGABRT", "SIGABRT", "", "", "", ""):
        end(exits, "", failure)
    run = UpgradeRun(Criteria({}, ("latency",)), 1, check_nothing, Sink(tmp_path))

    def be_late_once(*_: Any) -> None:
        late = replace(ROUND_RECORD, figures={"query_latency": changed(0.0, error=math.inf)})
        run.result = replace(result_of(alike(0.0), ("latency",)), rounds=[late])
        run._exits = exits

    module = import_module("pytest_mlms.decide.upgrade.run")
    monkeypatch.setattr(module, "run_interleaved", be_late_once)
    result = run.run(InterleavePlan(0.0, 60.0, 7), Mock(), Mock())
    assert result.complete
    assert [one.quantity for one in result.undecided_gates] == ["crash"]


def check_nothing(*_: Any) -> OutputFindings:
    raise AssertionError("no round has outputs")


def test_exits_that_are_open_have_advice_of_their_own() -> None:
    exits = Exits()
    for failure in ("SIGABRT", "SIGABRT", "", "", "", ""):
        end(exits, "", failure)
    told = exits.open_comparison()
    assert told is not None
    result = UpgradeResult(comparisons=[told], complete=True)
    (advice,) = advice_on(result, setting())
    assert advice.startswith("try: another run, or --mlms-budget, in the time of which once more")
    assert explain_upgrade(result, setting()).count("INCONCLUSIVE crash: of 6 exits") == 1


CRASHED = UpgradeResult(comparisons=[crash_comparison("candidate new: SIGSEGV\nits log ends:")])


def test_a_crash_is_a_regression_with_its_whole_reason_and_the_command() -> None:
    made = setting(
        framework="onnxruntime",
        point="m.yaml::test_upgrade[cpu-b8]",
        changed_packages=["numpy 2.0.0 → 1.0.0", "onnxruntime 1.22.0 → 1.23.0"],
        packages=(["onnxruntime==1.22.0"], ["onnxruntime==1.23.0"]),
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
