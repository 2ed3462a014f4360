"""A bisection as it runs: each judgement is measured once, recorded at once, and told."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.records import Stack
from pytest_mlms.explain.bisect.gate import GateRun
from pytest_mlms.explain.bisect.judgement import CRASH, Judgement, ending_of, judgement_of
from pytest_mlms.explain.bisect.record import Conclusion, Probe, Record, StackRecord
from pytest_mlms.explain.bisect.search import Answer, Outcome, Pair, Purpose, search
from pytest_mlms.provide.stacks.exact_packages import differing_packages

_NOT_MEASURED = ("ERROR", "SKIPPED", "FAILED")


class PairGate(Protocol):
    """The part of ``pytest_mlms.explain.bisect.gate.Gate`` that a bisection uses."""

    def show(self, step: str) -> None:
        """Tell a step."""

    def install(self, stack: Stack) -> tuple[str, ...]:
        """Make a stack; return its exact packages. Raises MlmsError."""

    def run(self, before: Stack, after: Stack, quantity: str | None, effort: int) -> GateRun:
        """Judge a stack against an earlier one."""


@dataclass(frozen=True)
class Bisection:
    """A record, its file, and the gate that judges.

    ``tell`` is called with each probe once: when it was measured, or found in the record.
    """

    record: Record
    path: Path
    gate: PairGate
    tell: Callable[[Probe], None]
    _told: list[Probe] = field(default_factory=list)

    def judge(self, before: Stack, after: Stack, purpose: Purpose, effort: int) -> Outcome:
        """Judge a stack against an earlier one; see ``_judged``."""
        return self._judged(before, after, purpose, effort).outcome

    def _judged(self, before: Stack, after: Stack, purpose: Purpose, effort: int) -> Judgement:
        """Judge a stack against an earlier one, unless the record has that judgement.

        Raises MlmsError where one of the ends can't be installed or measured.
        """
        probe = self.record.find(before.name, after.name, purpose, effort)
        if probe is None:
            probe = self._measure(before, after, purpose, effort)
            self.record.probes.append(probe)
            self._choose_quantity(probe.judgement)
            self.record.write(self.path)
        if probe not in self._told:
            self._told.append(probe)
            self.tell(probe)
        return probe.judgement

    def judge_twice(self, before: Stack, after: Stack, purpose: Purpose) -> Outcome:
        """Judge a stack; where that stays undecided, again with twice the budget."""
        outcome = self.judge(before, after, purpose, 1)
        if outcome is Outcome.UNDECIDED:
            return self.judge(before, after, purpose, 2)
        return outcome

    def search(self, stacks: Sequence[Stack], limit: int) -> Answer:
        """Search the stacks for the first one that is worse than the one before it.

        On the way, one that is surely worse than the good end is bad even where it is not shown
        to be worse than the tolerance: a gradual change would stay undecided for many releases.
        """

        def judge(pair: Pair) -> Outcome:
            before = stacks[pair.before]
            after = stacks[pair.after]
            judged = self._judged(before, after, pair.purpose, pair.effort)
            is_undecided = judged.outcome is Outcome.UNDECIDED
            if pair.purpose == "search" and is_undecided and judged.is_worse:
                return Outcome.BAD
            return judged.outcome

        return search(len(stacks), judge, limit)

    def conclude(self, answer: Answer, stacks: Sequence[Stack], versions: Sequence[str]) -> None:
        """Record the answer of a search over these stacks, which have these versions."""
        before = stacks[answer.before].name
        after = stacks[answer.after].name
        probe = self._last_probe(before, after)
        between = versions[answer.before + 1 : answer.after]
        others = self._others(before, after)
        self.record.answer = Conclusion(
            kind=answer.kind,
            before=before,
            after=after,
            package=self.record.package,
            old=versions[answer.before],
            new=versions[answer.after],
            between=tuple(between),
            others=tuple(others),
            judgement=probe.judgement,
            run=probe.run,
            nodeid=probe.nodeid,
            spent=answer.spent,
        )
        self.record.write(self.path)

    def _last_probe(self, before: str, after: str) -> Probe:
        for probe in reversed(self.record.probes):
            if (probe.before, probe.after) == (before, after):
                return probe
        raise AssertionError(f"{after} was not judged against {before}")

    def _others(self, before: str, after: str) -> list[str]:
        """Return the packages that differ between two stacks beside the one that is searched."""
        stacks = self.record.stacks
        old = stacks[before].packages
        new = stacks[after].packages
        searched = self.record.package.split()
        others = []
        for difference in differing_packages(old, new):
            if difference.package not in searched:
                others.append(str(difference))
        return others

    def _measure(self, before: Stack, after: Stack, purpose: Purpose, effort: int) -> Probe:
        began = datetime.datetime.now(datetime.timezone.utc)
        start = time.monotonic()
        problem = self._install_both(before, after, purpose)
        if problem:
            missing = Judgement(Outcome.UNAVAILABLE, "", "SKIPPED", reason=problem)
            return Probe(before.name, after.name, purpose, effort, missing)
        quantity = self.record.quantity
        self.gate.show(f"judging {after.name} against {before.name}")
        done = self.gate.run(before, after, quantity, effort)
        judgement = self._as_at_the_ends(judgement_of(done.line, quantity))
        if purpose == "ends":
            _check_measured(judgement)
        return Probe(
            before=before.name,
            after=after.name,
            purpose=purpose,
            effort=effort,
            judgement=judgement,
            run=done.run,
            nodeid=str(done.line["nodeid"]),
            began=began.isoformat(timespec="seconds"),
            seconds=round(time.monotonic() - start, 1),
        )

    def _as_at_the_ends(self, judged: Judgement) -> Judgement:
        """Return a judgement: a crash of another kind than that of the ends says nothing of it."""
        probes = [probe for probe in self.record.probes if probe.purpose == "ends"]
        bad = [probe.judgement for probe in probes if probe.judgement.outcome is Outcome.BAD]
        if judged.quantity != CRASH or judged.outcome is not Outcome.BAD or not bad:
            return judged
        found, wanted = ending_of(judged.reason), ending_of(bad[-1].reason)
        if found == wanted:
            return judged
        ways = f"{found or 'another error'}, not {wanted or 'that of the bad end'}"
        reason = f"it fails in another way ({ways}): {judged.reason}"
        return replace(judged, outcome=Outcome.UNDECIDED, reason=reason)

    def _install_both(self, before: Stack, after: Stack, purpose: Purpose) -> str:
        """Make both stacks; return why the later one can't be made, "" where it can.

        Raises MlmsError where the earlier one or an end can't be made.
        """
        problem = self._install(before)
        if problem:
            raise MlmsError(problem)
        problem = self._install(after)
        if problem and purpose == "ends":
            raise MlmsError(problem)
        return problem

    def _install(self, stack: Stack) -> str:
        """Make a stack and record its packages; return why it can't be made, "" where it can."""
        packages: tuple[str, ...] = ()
        problem = ""
        try:
            packages = self.gate.install(stack)
        except MlmsError as error:
            problem = str(error)
        self.record.stacks[stack.name] = StackRecord(
            framework=stack.framework,
            requirements=stack.requirements,
            python=stack.python,
            options=stack.options,
            packages=packages,
            problem=problem,
        )
        return problem

    def _choose_quantity(self, judgement: Judgement) -> None:
        """Search for the quantity that the ends differ in, where none was asked for."""
        is_bad = judgement.outcome is Outcome.BAD
        if self.record.quantity is None and (is_bad or judgement.quantity == CRASH):
            self.record.quantity = judgement.quantity


def _check_measured(judgement: Judgement) -> None:
    """Raise MlmsError where the ends could not be measured: a search would not be, either."""
    if judgement.outcome is not Outcome.UNDECIDED or judgement.verdict not in _NOT_MEASURED:
        return
    problem = f"the ends can't be judged by {judgement.quantity}: {judgement.reason}"
    raise MlmsError(f"{problem}; mend that, or bisect --quantity crash")
