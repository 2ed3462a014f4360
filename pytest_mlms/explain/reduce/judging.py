"""Judgement of a model, which shows a failure or not: by the gate's verdict, or by a command."""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

from pytest_mlms.core.arrays import Arrays
from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.files import write_arrays
from pytest_mlms.core.records import Verdict
from pytest_mlms.core.text import visible
from pytest_mlms.decide.upgrade.labels import straddling_text
from pytest_mlms.decide.upgrade.round_estimate import RoundSpan
from pytest_mlms.explain.bisect.search import Outcome
from pytest_mlms.explain.reduce.deviation import departing_rows, deviation
from pytest_mlms.explain.reduce.sides import Failure, Sides
from pytest_mlms.explain.repro.bundle import Bundle, Expectation
from pytest_mlms.explain.repro.expectation import can_reduce
from pytest_mlms.explain.repro.replay.record import CRASH, OUTPUTS, RATIO
from pytest_mlms.explain.repro.sides import BundleRun
from pytest_mlms.explain.repro.verdict import Effort, compare_outputs, compare_ratio, rule_of
from pytest_mlms.measure.evaluate.closeness import NearbyOutputs, nearby_outputs

_SEARCHED = Effort(seconds=0.3, budget=120.0, rounds=RoundSpan(3, 4))
"""Of each model of a search; the smallest one is replayed with the effort of an item."""

_COLOUR = re.compile(r"\x1b\[[\d;]*m")
_CANT_SAY = 125
"""The exit status of a command that can't say, as ``git bisect run`` has it."""

_NOT_RUN = (126, 127)
"""Exit statuses of a shell whose program can't be run, or isn't there."""

_OUTCOMES = {
    Verdict.REGRESSED: Outcome.BAD,
    Verdict.PASSED: Outcome.GOOD,
    Verdict.IMPROVED: Outcome.GOOD,
}


class ModelJudgement(NamedTuple):
    """The outcome of a model on both sides: BAD shows the failure, UNDECIDED says nothing.

    ``rows`` are the rows of the outputs that depart, the worst first. ``expected`` is what a replay
    of this model is held against, None where it doesn't show the failure. ``crash`` is how the new
    side failed.
    """

    outcome: Outcome
    reason: str
    rows: tuple[int, ...] = ()
    expected: Expectation | None = None
    crash: str = ""


class Judge(Protocol):
    """Runs a model."""

    def __call__(self, model: Path, inputs: Arrays) -> ModelJudgement:
        """Return whether the model shows the failure."""


def check_reducible(bundle: Bundle) -> None:
    """Raise MlmsError, which says what to do, for a bundle that the gate can't judge parts of."""
    expected = bundle.expected
    if bundle.old is None:
        problem = "the failure is one stack's, and a reduction compares two"
        raise MlmsError(f"{problem}; name an item of an upgrade, or judge by --check COMMAND")
    check_onnx(bundle)
    if expected.at_exit:
        problem = "the failure is of a process at its exit, and a reduction looks at calls"
        raise MlmsError(f"{problem}; judge by --check COMMAND, which runs a model and ends")
    if expected.kind not in (OUTPUTS, CRASH) and not _is_of_time(expected):
        problem = f"the failure is of {expected.quantity}"
        raise MlmsError(f"{problem}; what can be reduced is of outputs, latency or a crash")


def check_onnx(bundle: Bundle) -> None:
    """Raise MlmsError for a model that is no ONNX file."""
    graph = bundle.files.get("graph")
    if graph is None or graph.suffix != ".onnx":
        name = "the model" if graph is None else graph.name
        raise MlmsError(f"{name} is no ONNX file; export the model as ONNX to reduce it")


def judge_of(bundle: Bundle, sides: Sides) -> Judge:
    """Return the judge of a bundle's failure."""
    expected = bundle.expected
    if expected.kind == CRASH:
        return CrashJudge(sides, expected, expected.crash)
    if _is_of_time(expected):
        return RatioJudge(sides, bundle)
    return OutputJudge(sides, bundle)


def _is_of_time(expected: Expectation) -> bool:
    return expected.kind == RATIO and can_reduce(expected.quantity, "rounds")


@dataclass(frozen=True)
class OutputJudge:
    """The failure is that outputs depart, by the gate's verdict on them."""

    sides: Sides
    bundle: Bundle

    def __call__(self, model: Path, inputs: Arrays) -> ModelJudgement:
        """Compare the outputs of both sides, as often as shows those that differ now and then."""
        old = self.sides.old.run(model, inputs)
        if isinstance(old, Failure):
            return _undecided(self.sides.old.name, old)
        judged = None
        for new in self.sides.new.runs(model, inputs, max(1, self.bundle.expected.calls)):
            if isinstance(new, Failure):
                return _undecided(self.sides.new.name, new)
            found = self._judge(model, inputs, old, new)
            if judged is None or found.outcome is not Outcome.GOOD:
                judged = found
            if found.outcome is Outcome.BAD:
                break
        assert judged is not None, "it is called once at least"
        return judged

    def _judge(self, model: Path, inputs: Arrays, old: Arrays, new: Arrays) -> ModelJudgement:
        """Judge the outputs of one call of the new side."""

        def nearby() -> NearbyOutputs:
            return nearby_outputs(self.sides.old.load(model).predict, inputs)

        try:
            found = compare_outputs(self.bundle, old, new, nearby)
        except MlmsError as error:  # for rounded inputs
            return ModelJudgement(Outcome.UNDECIDED, str(error).splitlines()[0])
        reason = found.lacking or found.told
        if found.verdict is Verdict.INCONCLUSIVE:
            return ModelJudgement(Outcome.UNDECIDED, reason)
        if found.verdict is not Verdict.REGRESSED:
            return ModelJudgement(Outcome.GOOD, f"{found.ratio:.2g} of what is allowed")
        expected = self._expected(reason, found.ratio, old)
        return ModelJudgement(Outcome.BAD, reason, self._rows(old, new), expected)

    def _rows(self, old: Arrays, new: Arrays) -> tuple[int, ...]:
        """Return the rows that depart of the output that departs most."""
        worst, rows = 0.0, ()
        for name, array in old.items():
            rule = rule_of(self.bundle.expected, name, self.bundle.device)
            if name in new and deviation(array, new[name], rule).multiple > worst:
                worst = deviation(array, new[name], rule).multiple
                rows = tuple(departing_rows(array, new[name], rule).tolist())
        return rows

    def _expected(self, reason: str, ratio: float, outputs: Arrays) -> Expectation:
        """Return what a replay is held against: by the same rules, of a part's own outputs."""
        whole = self.bundle.expected
        names = [name for name in outputs if name in whole.rules] or list(outputs)
        return Expectation(
            kind=OUTPUTS,
            quantity="agreement",
            verdict=whole.verdict,
            summary=reason,
            ratio=ratio if np.isfinite(ratio) else None,
            rtol=whole.rtol,
            atol=whole.atol,
            rules={name: whole.rules.get(name, {}) for name in names},
            calls=whole.calls,
        )


@dataclass(frozen=True)
class RatioJudge:
    """The failure is that calls take longer, by the gate's verdict on a few rounds."""

    sides: Sides
    bundle: Bundle

    def __call__(self, model: Path, inputs: Arrays) -> ModelJudgement:
        """Measure both sides in fresh processes."""
        part = replace(self.bundle, files={"graph": model}, inputs=dict(inputs))
        old, new = self.sides
        run = BundleRun(part, {"a": old.launch, "b": new.launch}, old.log.parent)
        try:
            found = compare_ratio(run, effort=_SEARCHED)
        except MlmsError as error:
            return ModelJudgement(Outcome.UNDECIDED, str(error).splitlines()[0])
        if found.quantity == CRASH:
            return ModelJudgement(Outcome.UNDECIDED, found.lacking.splitlines()[0])
        outcome = _OUTCOMES.get(found.verdict, Outcome.UNDECIDED)
        text = f"{found.quantity} ×{found.ratio:.3f} ({found.low:.3f} to {found.high:.3f})"
        if outcome is not Outcome.BAD:
            why = found.lacking or straddling_text(found)
            is_open = outcome is Outcome.UNDECIDED
            return ModelJudgement(outcome, f"{text}: {why}" if is_open else text)
        expected = self.bundle.expected._replace(
            summary=text, a=found.a, b=found.b, ratio=found.ratio, low=found.low, high=found.high
        )
        return ModelJudgement(outcome, text, (), expected)


@dataclass(frozen=True)
class CrashJudge:
    """The failure is that the new side crashes, or refuses what the old one takes.

    ``crash`` is how it fails, which smaller models must do, too; "" for any way.
    """

    sides: Sides
    expected: Expectation
    crash: str = ""

    def __call__(self, model: Path, inputs: Arrays) -> ModelJudgement:
        """Run the new side, and if it fails the old one, which must not."""
        new = self.sides.new.run(model, inputs)
        if not isinstance(new, Failure):
            return ModelJudgement(Outcome.GOOD, "the new side runs it")
        if self.crash and new.how != self.crash:
            reason = f"another failure, {new.how} and not {self.crash}: {new.text}"
            return ModelJudgement(Outcome.UNDECIDED, reason)
        old = self.sides.old.run(model, inputs)
        if isinstance(old, Failure):
            return _undecided(self.sides.old.name, old)
        expected = self.expected._replace(summary=new.text, crash=new.how)
        return ModelJudgement(Outcome.BAD, new.text, (), expected, new.how)


def _undecided(side: str, failure: Failure) -> ModelJudgement:
    return ModelJudgement(Outcome.UNDECIDED, f"{side}: {failure.text}")


@dataclass(frozen=True)
class CommandJudge:
    """The failure is that a command fails on a model: its status is not 0.

    In its words ``{model}`` and ``{inputs}`` are the paths of the model and of an .npz file with
    its inputs; without ``{model}`` that path is its last word. A status of 125 says nothing.
    """

    words: Sequence[str]
    expected: Expectation
    folder: Path

    def __call__(self, model: Path, inputs: Arrays) -> ModelJudgement:
        """Run the command; raises MlmsError where there is none of that name, nor for its shell."""
        path = self.folder / "inputs.npz"
        write_arrays(path, inputs)
        words = [*self.words]
        if not any("{model}" in word for word in words):
            words.append("{model}")
        given = {"{model}": str(model), "{inputs}": str(path)}
        for place, text in given.items():
            words = [word.replace(place, text) for word in words]
        try:
            done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, check=False)
        except OSError as error:
            problem = f"--check {words[0]} can't be run: {error.strerror}"
            raise MlmsError(
                f"{problem}; name a program, and write quotes around the whole"
            ) from None
        reason = _ending_of(done)
        if done.returncode in _NOT_RUN:
            problem = f"--check {words[0]} ended as a shell whose program can't be run: {reason}"
            raise MlmsError(f"{problem}; try the command by itself")
        if done.returncode == _CANT_SAY:
            return ModelJudgement(Outcome.UNDECIDED, reason)
        if not done.returncode:
            return ModelJudgement(Outcome.GOOD, reason)
        return ModelJudgement(Outcome.BAD, reason, (), self.expected._replace(summary=reason))


def _name_of_signal(number: int) -> str:
    """Return a signal's name; those of real time have none but for the first and the last."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _ending_of(done: subprocess.CompletedProcess[bytes]) -> str:
    """Return how a command ended, and its last line."""
    ending = f"status {done.returncode}"
    if done.returncode < 0:
        ending = f"killed by {_name_of_signal(-done.returncode)}"
    text = _COLOUR.sub("", (done.stdout + done.stderr).decode(errors="replace")).strip()
    return f"{ending}: {visible(text.splitlines()[-1])}" if text else ending
