"""A bisection over a simulated gate: what is recorded and told, and what stops it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.records import Stack
from pytest_mlms.explain.bisect.bisection import Bisection
from pytest_mlms.explain.bisect.gate import GateRun
from pytest_mlms.explain.bisect.record import Probe, Record, read_record
from pytest_mlms.explain.bisect.releases import bisect_releases, release_stacks
from tests.support.bisections import SimulatedGate
from tests.support.questions import QUESTION

VERSIONS = ["1.0", "1.1", "1.2", "1.3", "1.4"]
STACKS = release_stacks("pace", VERSIONS, "pacekit", (), ())


def is_slow(packages: set[str]) -> bool:
    return bool(packages & {"pace==1.3", "pace==1.4"})


class Bisected:
    """A bisection in a folder, and what it told."""

    def __init__(self, folder: Path, gate: SimulatedGate, record: Record | None = None) -> None:
        self.path = folder / "bisect.json"
        self.gate = gate
        self.record = record or Record(QUESTION, package="pace", releases=VERSIONS)
        self.told: list[Probe] = []

    def run(self) -> None:
        bisection = Bisection(self.record, self.path, self.gate, self.told.append)
        bisect_releases(bisection, STACKS, 6)


def test_each_probe_is_written_before_it_is_told_and_the_answer_at_the_end(tmp_path: Path) -> None:
    bisected = Bisected(tmp_path, SimulatedGate(is_slow))
    bisected.run()
    record = read_record(bisected.path, QUESTION)
    assert record == bisected.record
    assert bisected.told == record.probes
    assert record.quantity == "latency"
    assert record.answer is not None
    assert (record.answer.old, record.answer.new) == ("1.2", "1.3")
    assert record.stacks["pace-1.3"].packages == ("pace==1.3", "numpy")


@pytest.mark.parametrize("stop", range(1, 4))
def test_a_bisection_that_was_stopped_asks_nothing_again(tmp_path: Path, stop: int) -> None:
    whole = Bisected(tmp_path, SimulatedGate(is_slow))
    whole.run()
    gate = SimulatedGate(is_slow, interrupted_after=stop)
    first = Bisected(tmp_path, gate)
    with pytest.raises(KeyboardInterrupt):
        first.run()
    record = read_record(first.path, QUESTION)
    assert len(record.probes) == stop
    record.reopen()
    rest = Bisected(tmp_path, SimulatedGate(is_slow), record)
    rest.run()
    assert rest.gate.runs == len(whole.record.probes) - stop
    assert [probe.after for probe in rest.told] == [probe.after for probe in whole.told]
    assert rest.record.answer == whole.record.answer


def test_a_release_that_cannot_be_installed_is_recorded_and_an_end_is_an_error(
    tmp_path: Path,
) -> None:
    bisected = Bisected(tmp_path, SimulatedGate(is_slow, missing=["pace-1.2"]))
    bisected.run()
    record = bisected.record
    assert record.stacks["pace-1.2"].problem == "no such package"
    assert record.answer is not None
    assert (record.answer.kind, record.answer.between) == ("range", ("1.2",))
    for end in ("pace-1.0", "pace-1.4"):
        with pytest.raises(MlmsError, match="no such package"):
            Bisected(tmp_path, SimulatedGate(is_slow, missing=[end])).run()


@pytest.mark.parametrize("verdict", ["ERROR", "SKIPPED"])
def test_ends_that_cannot_be_measured_are_an_error_and_asked_again(
    tmp_path: Path, verdict: str
) -> None:
    failed: dict[str, Any] = {"verdict": verdict, "comparisons": [], "message": "no such device"}
    bisected = Bisected(tmp_path, SimulatedGate(is_slow, line=failed))
    with pytest.raises(MlmsError, match="can't be judged by latency: no such device; mend that"):
        bisected.run()
    assert bisected.record.probes == []


def test_packages_that_changed_with_the_release_are_told(tmp_path: Path) -> None:
    also = {"pace-1.3": ("numpy==2.0",), "pace-1.2": ("numpy==1.9",)}
    bisected = Bisected(tmp_path, SimulatedGate(is_slow, also=also))
    bisected.run()
    assert bisected.record.answer is not None
    assert bisected.record.answer.others == ("numpy 1.9 → 2.0",)


def test_a_release_that_is_surely_worse_but_undecided_is_bad_on_the_way_only(
    tmp_path: Path,
) -> None:
    unsure: dict[str, Any] = {
        "quantity": "latency",
        "verdict": "INCONCLUSIVE",
        "of": "rounds",
        "lacking": "",
        "unit": "s",
        "gate": True,
        "replicates": 5,
    }
    figures = {"a": 1.0, "b": 1.03, "ratio": 1.03, "low": 1.02, "high": 1.04, "tolerance": 0.03}
    line = {"verdict": "INCONCLUSIVE", "comparisons": [{**unsure, **figures}]}
    bisected = Bisected(tmp_path, EndsDiffer(is_slow, line=line))
    bisected.run()
    answer = bisected.record.answer
    assert answer is not None
    assert (answer.kind, answer.old, answer.new) == ("range", "1.0", "1.1")
    purposes = [probe.purpose for probe in bisected.record.probes]
    assert purposes == ["ends", "search", "search", "neighbours"]


class EndsDiffer(SimulatedGate):
    """A gate that decides on the ends alone; all other lines are the one given."""

    def run(self, before: Stack, after: Stack, quantity: str | None, effort: int) -> GateRun:
        done = super().run(before, after, quantity, effort)
        if after.name != "pace-1.4":
            return done
        return SimulatedGate(is_slow).run(before, after, quantity, effort)


class Crashing(SimulatedGate):
    """A gate of releases that crash, each in its way."""

    endings: ClassVar = {
        "pace-1.3": "'load' raised Fail: no operator",
        "pace-1.4": "killed by SIGSEGV",
    }

    def run(self, before: Stack, after: Stack, quantity: str | None, effort: int) -> GateRun:
        done = super().run(before, after, quantity, effort)
        ending = self.endings.get(after.name)
        if ending is None:
            return GateRun({**done.line, "comparisons": []}, done.run)
        lacking = f"m.yaml:1: m: candidate {after.name}: {ending}"
        crash = {"quantity": "crash", "verdict": "REGRESSED", "of": "processes", "lacking": lacking}
        return GateRun({**done.line, "verdict": "REGRESSED", "comparisons": [crash]}, done.run)


def test_a_release_that_crashes_in_another_way_than_the_bad_end_is_not_accused(
    tmp_path: Path,
) -> None:
    bisected = Bisected(tmp_path, Crashing(is_slow))
    bisected.run()
    answer = bisected.record.answer
    assert answer is not None
    assert (answer.kind, answer.old, answer.new) == ("range", "1.2", "1.4")
    assert answer.between == ("1.3",)
    other = next(probe for probe in bisected.told if probe.after == "pace-1.3")
    assert "fails in another way (Fail, not SIGSEGV)" in other.judgement.reason


def test_a_release_that_crashes_is_not_accused_of_a_hang(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    endings = {"pace-1.3": "killed by SIGSEGV", "pace-1.4": "no reply to 'load' in 600 s"}
    monkeypatch.setattr(Crashing, "endings", endings)
    bisected = Bisected(tmp_path, Crashing(is_slow))
    bisected.run()
    answer = bisected.record.answer
    assert answer is not None
    assert (answer.kind, answer.old, answer.new) == ("range", "1.2", "1.4")


class CrashingAtLast(Crashing):
    """A gate whose ends are undecided at first."""

    endings: ClassVar = dict.fromkeys(["pace-1.3", "pace-1.4"], "killed by SIGSEGV; look")

    def run(self, before: Stack, after: Stack, quantity: str | None, effort: int) -> GateRun:
        done = super().run(before, after, quantity, effort)
        if quantity is not None or effort > 1:
            return done
        return GateRun({**done.line, "verdict": "INCONCLUSIVE", "comparisons": []}, done.run)


def test_a_crash_of_the_ends_is_found_that_were_undecided_at_first(tmp_path: Path) -> None:
    """Their first judgement was taken for the way in which they fail."""
    bisected = Bisected(tmp_path, CrashingAtLast(is_slow))
    bisected.run()
    answer = bisected.record.answer
    assert answer is not None
    assert (answer.kind, answer.new) == ("found", "1.3")


def test_a_release_that_crashes_as_the_bad_end_does_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Crashing(is_slow)
    monkeypatch.setattr(gate, "endings", dict.fromkeys(gate.endings, "killed by SIGSEGV; look"))
    bisected = Bisected(tmp_path, gate)
    bisected.run()
    answer = bisected.record.answer
    assert answer is not None
    assert (answer.kind, answer.new) == ("found", "1.3")
