"""Judgement of a model, which shows the failure of a bundle or not: it runs on both sides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from pytest_mlms.explain.bisect.search import Outcome
from pytest_mlms.explain.reduce.deviation import departing_rows, deviation, rule_of
from pytest_mlms.explain.reduce.sides import Failure, Sides
from pytest_mlms.explain.repro.bundle import Expectation
from pytest_mlms.explain.repro.replay.record import OUTPUTS

Array = NDArray[Any]
Arrays = Mapping[str, Array]


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
    """Runs a model on both sides."""

    def __call__(self, model: Path, inputs: Arrays) -> ModelJudgement:
        """Return whether the model shows the failure."""


@dataclass(frozen=True)
class OutputJudge:
    """The failure is that outputs depart."""

    sides: Sides
    expected: Expectation

    def __call__(self, model: Path, inputs: Arrays) -> ModelJudgement:
        """Compare the outputs of both sides."""
        old = self.sides.old.run(model, inputs)
        if isinstance(old, Failure):
            return _undecided(self.sides.old.name, old)
        new = self.sides.new.run(model, inputs)
        if isinstance(new, Failure):
            return _undecided(self.sides.new.name, new)
        return self._compare(old, new)

    def _compare(self, old: Arrays, new: Arrays) -> ModelJudgement:
        worst = 0.0
        rows: Array = np.array([], np.int64)
        for name in self._compared(old):
            expected, rule = old[name], rule_of(self.expected, name)
            if name not in new:
                return ModelJudgement(Outcome.UNDECIDED, f"{name!r} is absent on one side")
            if new[name].shape != expected.shape:
                return self._differ(_shapes(name, expected, new[name]), np.inf, (), old)
            found = deviation(expected, new[name], rule)
            if found.multiple > worst:
                worst = found.multiple
                rows = departing_rows(expected, new[name], rule)
        if worst <= 1:
            return ModelJudgement(Outcome.GOOD, f"{worst:.2g} of what is allowed")
        reason = f"the outputs differ by {worst:.3g} times what is allowed"
        if np.isinf(worst):
            reason = "one side alone has NaN or infinity"
        return self._differ(reason, worst, tuple(rows.tolist()), old)

    def _compared(self, outputs: Arrays) -> list[str]:
        """Return the outputs that the failure is of; of a part of the model all."""
        return [name for name in outputs if name in self.expected.rules] or list(outputs)

    def _differ(
        self, reason: str, worst: float, rows: tuple[int, ...], outputs: Arrays
    ) -> ModelJudgement:
        """Return the judgement on outputs that depart; a replay is held against these."""
        expected = Expectation(
            kind=OUTPUTS,
            quantity="agreement",
            verdict=self.expected.verdict,
            summary=reason,
            ratio=worst if np.isfinite(worst) else None,
            rtol=self.expected.rtol,
            atol=self.expected.atol,
            rules={name: self.expected.rules.get(name, {}) for name in self._compared(outputs)},
        )
        return ModelJudgement(Outcome.BAD, reason, rows, expected)


def _shapes(name: str, old: Array, new: Array) -> str:
    return f"{name!r} is {old.shape} before and {new.shape} after"


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
