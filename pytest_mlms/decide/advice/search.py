"""The search for the best candidate under limits: successive halving in rounds of fresh processes.

It is pure: it is given the function that measures a candidate for one more process, and returns a
record. All candidates that are left are measured in each round, in an order of its own, so that
what a round does to all of them cancels, and none always follows the same other one. After some
rounds those are left out that surely break a limit, and those that a candidate surely beats which
is surely within the limits. None is left out for what noise may
have done, unless the budget asks for it, and then nothing is said of it that isn't sure.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from statistics import fmean
from typing import Literal, NamedTuple

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.quantities import QUANTITIES
from pytest_mlms.core.records import Limit
from pytest_mlms.core.statistics import Interval
from pytest_mlms.decide.advice.evidence import (
    Column,
    Fitted,
    Range,
    Spread,
    difference,
    fit_spreads,
    log_of_mean,
    range_of,
)
from pytest_mlms.measure.evaluate.limits import scale_of
from pytest_mlms.measure.evaluate.performance_plan import ENOUGH, ROOM

LOOKS = (2, 3, 4, 6, 8, 11, 15, 20, 27, 36, 48)
"""Rounds after which candidates are judged."""

_LEAST = 1e-12  # in place of a value that has no logarithm
_SHOWN_RISK = 0.025  # at each end of an interval that is shown

Standing = Literal[
    "best", "alike", "worse", "near", "open", "breaks", "failed", "set aside", "unmeasured"
]
"""The state of a candidate in the end; docs/advise.md describes each."""

Check = Literal["meets", "near", "open", "breaks"]

Ending = Literal["decided", "budget", "last look", "history", "interrupted"]


class NoFurtherRun(Exception):
    """A history has no further run of a candidate."""


class EndOfRecord(Exception):
    """A record that is replayed has no further process: its run was interrupted there."""


class Process(NamedTuple):
    """One process of a candidate: its values by quantity, and the seconds that it took in all.

    ``slack`` is the logarithm of the factor by which a quantity may still change, as calls that get
    faster or slower have it; what isn't there has settled.
    """

    values: Mapping[str, float]
    seconds: float
    slack: Mapping[str, float] = {}


Measure = Callable[[int], Process]
"""Measures the candidate of a number for one more process; raises MlmsError where that fails."""

Reach = Callable[[int, str, float], Interval]
"""Returns what the interval of a candidate's quantity must have in it, at a confidence.

A percentile of few calls is no better known than these tell, however alike its processes are.
"""

Turn = Callable[[], AbstractContextManager[None]]
"""Opens the context of a round, in which the devices are held."""


def _judges_all(limit: Limit, number: int) -> bool:
    return True


@dataclass(frozen=True)
class Goal:
    """The aim of a search.

    ``sign`` is 1 where less of the ``objective`` is better, -1 where more is. A limit holds for the
    candidates that it ``judges``. A candidate that is better by less than the ``tolerance``, a
    share, is as good. The ``risk`` is that of a best candidate that is left out, and
    ``limit_risk`` that of an answer that breaks a limit. ``budget`` is in seconds of processes.
    """

    objective: str
    sign: int
    limits: Sequence[Limit] = ()
    judges: Callable[[Limit, int], bool] = _judges_all
    tolerance: float = 0.05
    risk: float = 0.025
    limit_risk: float = 0.025
    budget: float = math.inf
    looks: Sequence[int] = LOOKS


@dataclass(frozen=True)
class Finding:
    """The knowledge of a candidate after some ``processes``.

    ``ranges`` has the mean and the 95 % interval of each quantity. ``ratio`` is by what factor it
    is worse than the best, below 1 where it may be better, at the risk of the search; None where
    that isn't known. ``checks`` are those of the limits. ``reason`` is why it ``failed``.
    """

    standing: Standing
    processes: int
    ranges: Mapping[str, Range] = field(default_factory=dict)
    ratio: Range | None = None
    checks: Sequence[Check] = ()
    reason: str = ""


@dataclass(frozen=True)
class Advice:
    """The answer of a search.

    ``best`` is the number of the candidate that is surely within the limits and seems best, None
    where there is none. It ``is_sure`` where no other that may be within them may be better by more
    than the tolerance. ``findings`` are in the order of the candidates.
    """

    best: int | None
    is_sure: bool
    ended: Ending
    rounds: int
    findings: Sequence[Finding]


def _reach_nothing(number: int, quantity: str, confidence: float) -> Interval:
    return Interval(math.inf, 0.0)


def search(
    count: int,
    goal: Goal,
    measure: Measure,
    reach: Reach = _reach_nothing,
    turn: Turn = nullcontext,
) -> Advice:
    """Measure ``count`` candidates until one is surely as good as any, or the budget is spent.

    The same processes give the same answer. Ctrl-C ends the search: what there is is judged. What
    a ``turn`` raises ends it without an answer.
    """
    candidates = _Candidates(count, goal, reach)
    ended: Ending = "last look"
    try:
        for look in goal.looks:
            is_spent = not _measure_until(look, candidates, measure, turn)
            candidates.judge()
            if not candidates.active or is_spent:
                ended = "budget" if candidates.active else "decided"
                break
    except NoFurtherRun:
        ended = "history"
        candidates.judge()
    except (KeyboardInterrupt, EndOfRecord):
        ended = "interrupted"
        candidates.judge()
    return candidates.advice(ended)


def _measure_until(look: int, candidates: _Candidates, measure: Measure, turn: Turn) -> bool:
    """Measure rounds up to a look; return False where the budget ends before."""
    while candidates.active and candidates.rounds < look:
        candidates.halve(look - candidates.rounds)
        candidates.rounds += 1
        with turn():
            if not _measure_round(candidates, measure):
                return False
    return True


def _measure_round(candidates: _Candidates, measure: Measure) -> bool:
    """Measure each active candidate once; return False where the budget ends before."""
    order = random.Random(candidates.rounds).sample(candidates.active, len(candidates.active))
    ended = 0
    for number in order:
        if not candidates.affords(number):
            return False
        try:
            process = measure(number)
        except NoFurtherRun:
            ended += 1
        except MlmsError as error:
            candidates.leave_out(number, "failed", str(error))
        else:
            candidates.add(number, process)
    if ended == len(order):
        raise NoFurtherRun
    return True


class _Candidates:
    """Measurements of candidates, and which of them are ``active``: measured further."""

    def __init__(self, count: int, goal: Goal, reach: Reach) -> None:
        self.rounds = 0
        self.active = list(range(count))
        self._numbers = range(count)
        self._goal = goal
        self._reach = reach
        self._spent = 0.0
        self._seconds: list[list[float]] = [[] for _ in self._numbers]
        self._slacks: list[list[Mapping[str, float]]] = [[] for _ in self._numbers]
        quantities = [goal.objective, *(limit.quantity for limit in goal.limits)]
        self._values: dict[str, list[dict[int, float]]] = {
            name: [{} for _ in self._numbers] for name in quantities
        }
        self._out: dict[int, tuple[Standing, str]] = {}
        self._checks: dict[int, list[Check]] = {}
        self._ratios: dict[int, Range] = {}
        self._beaten_by: dict[int, int] = {}
        self._best: int | None = None

    def add(self, number: int, process: Process) -> None:
        """Take a process of this round."""
        for name, value in process.values.items():
            if name in self._values:
                self._values[name][number][self.rounds] = math.log(max(value, _LEAST))
        self._slacks[number].append(process.slack)
        self._seconds[number].append(process.seconds)
        self._spent += process.seconds

    def leave_out(self, number: int, standing: Standing, reason: str = "") -> None:
        """Measure a candidate no more."""
        self._out[number] = (standing, reason)
        self.active = [each for each in self.active if each != number]

    def affords(self, number: int) -> bool:
        """Return whether the budget has the time of one more process of a candidate."""
        longest = max(self._seconds[number], default=0.0)
        return self._spent + longest <= self._goal.budget

    def halve(self, rounds: int) -> None:
        """Measure only the better half where the budget doesn't have so many rounds of all."""
        left = self._goal.budget - self._spent
        while len(self.active) > 1 and rounds * sum(map(self._cost, self.active)) > left:
            ranked = sorted(self.active, key=self._rank)
            self.active = sorted(ranked[: len(ranked) // 2])

    def _cost(self, number: int) -> float:
        return fmean(self._seconds[number] or [0.0])

    def _rank(self, number: int) -> tuple[float, float]:
        """Return by how much a candidate seems to break a limit, and then the objective."""
        broken = 0.0
        for limit in self._limits_of(number):
            side = 1 if scale_of(limit).bound == "max" else -1
            column = self._values[limit.quantity][number]
            broken = max(broken, side * (_mean(column) - _log(limit.value)))
        return broken, self._goal.sign * _mean(self._values[self._goal.objective][number])

    def _limits_of(self, number: int) -> list[Limit]:
        return [limit for limit in self._goal.limits if self._goal.judges(limit, number)]

    def _slack(self, number: int, quantity: str) -> float:
        """Return the logarithm by which a candidate's mean may change if its calls go on."""
        return fmean(slack.get(quantity, 0.0) for slack in self._slacks[number])

    def judge(self) -> None:
        """Decide on limits, find the best, and leave out what is worse or breaks a limit."""
        judged = [
            number
            for number in self._numbers
            if number not in self._out and len(self._seconds[number]) >= LOOKS[0]
        ]
        for number in judged:
            self._checks[number] = []
        pairs = sum(len(self._limits_of(number)) for number in self._numbers)
        for limit in self._goal.limits:
            chosen = [number for number in judged if self._goal.judges(limit, number)]
            self._check(
                limit, chosen, self._goal.limit_risk / len(self._goal.looks) / max(pairs, 1)
            )
        for number in judged:
            if "breaks" in self._checks[number]:
                self.leave_out(number, "breaks")
        judged += self._readmit(judged)
        able = [number for number in judged if self._fits(number)]
        before, self._best = self._best, self._best_of(able)
        self._compare([number for number in judged if number not in self._out])
        self._choose_active(is_new=before not in (None, self._best))

    def _fits(self, number: int) -> bool:
        return {*self._checks[number]} <= {"meets"}

    def _readmit(self, judged: Sequence[int]) -> list[int]:
        """Return those that were worse than one that isn't shown any more to be within the limits.

        They are in the search again.
        """
        found = []
        for number in self._beaten_by:
            better = number
            while better in self._beaten_by:
                better = self._beaten_by[better]
            if better not in judged or not self._fits(better):
                found.append(number)
        for number in found:
            del self._beaten_by[number], self._out[number]
        self.active = sorted({*self.active, *found})
        return found

    def _check(self, limit: Limit, chosen: Sequence[int], risk: float) -> None:
        """Add what is known of a limit to the checks of the candidates that it judges.

        As in items, it is about the mean over processes, not that of their logarithms.
        """
        columns = self._values[limit.quantity]
        fitted = fit_spreads(columns)
        estimator = QUANTITIES[limit.quantity].estimator
        is_rate = estimator is not None and estimator.is_rate
        for number in chosen:
            column = columns[number]
            found = range_of(column, fitted.spreads[number], fitted.rounds, risk)
            shift = log_of_mean(column, is_rate) - found.mean
            reach = self._reach(number, limit.quantity, 1 - 2 * risk)
            slack = self._slack(number, limit.quantity)
            low = min(found.low + shift, _log(reach.low)) - slack
            high = max(found.high + shift, _log(reach.high)) + slack
            self._checks[number].append(self._check_of(limit, low, high, column))

    def _check_of(self, limit: Limit, low: float, high: float, column: Column) -> Check:
        """Return what an interval of logarithms says of a limit.

        Fewer processes than show their kinds must have room, as those of items; those without any
        amount show no scatter to have room from.
        """
        bound = _log(limit.value)
        if scale_of(limit).bound == "min":
            low, high, bound = -high, -low, -bound
        is_few = len(column) < ENOUGH
        if is_few and min(column.values()) <= math.log(_LEAST):
            return "open"
        room = math.log(ROOM) if is_few else 0.0
        if high + room <= bound:
            return "meets"
        if low > bound + room:
            return "breaks"
        close = math.log1p(self._goal.tolerance)
        is_close = high <= bound + close and low >= bound - close
        return "near" if is_close and not is_few else "open"

    def _best_of(self, able: Sequence[int]) -> int | None:
        """Return the candidate that is better in the mean than each other one before it."""
        columns = self._values[self._goal.objective]
        best: int | None = None
        for number in able:
            if (
                best is None
                or _mean_difference(columns[best], columns[number]) * self._goal.sign < 0
            ):
                best = number
        return best

    def _compare(self, judged: Sequence[int]) -> None:
        """Compare candidates with the best; leave out those that it surely beats.

        A statement about the true best is wrong by one of the comparisons that it is part of, so
        that these have the risk, and not all pairs (Hsu 1981, Annals of Statistics 9:1026).
        """
        self._ratios = {
            number: self._ratios[number] for number in self._ratios if number in self._out
        }
        if self._best is None or len(self._numbers) == 1:
            return
        spreads = fit_spreads(self._values[self._goal.objective]).spreads
        for number in judged:
            if number == self._best:
                continue
            found = self._compared(self._best, number, (spreads[self._best], spreads[number]))
            self._ratios[number] = found
            fewest = min(len(self._seconds[number]), len(self._seconds[self._best]))
            if found.low > (math.log(ROOM) if fewest < ENOUGH else 0.0):
                self.leave_out(number, "worse")
                self._beaten_by[number] = self._best

    def _compared(self, best: int, number: int, pair: tuple[Spread, Spread]) -> Range:
        """Return by what a candidate is worse than the best, as a logarithm."""
        objective = self._goal.objective
        columns = self._values[objective]
        risk = self._goal.risk / len(self._goal.looks) / (len(columns) - 1) / 2
        found = difference(columns[best], columns[number], pair, risk)
        if self._goal.sign < 0:
            found = Range(-found.mean, -found.high, -found.low)
        slack = self._slack(number, objective) + self._slack(best, objective)
        return Range(found.mean, found.low - slack, found.high + slack)

    def _choose_active(self, is_new: bool) -> None:
        """Measure on what may be better than the best, and the best with it; without one, all.

        With a new best, or none any more, that is asked again of all that are left.
        """
        left = [number for number in self._numbers if number not in self._out]
        asked = left if is_new else self.active
        may_be = [number for number in asked if "near" not in self._checks.get(number, ())]
        if self._best is not None:
            may_be = [number for number in may_be if self._may_be_better(number)]
            if may_be:
                may_be = sorted({*may_be, self._best})
        self.active = may_be

    def _may_be_better(self, number: int) -> bool:
        """Return whether a candidate may be better than the best by more than the tolerance."""
        if number == self._best:
            return False
        found = self._ratios.get(number)
        return found is None or found.low < -math.log1p(self._goal.tolerance)

    def advice(self, ended: Ending) -> Advice:
        """Return what is known of each candidate."""
        left = [number for number in self._numbers if number not in self._out]
        rivals = [each for each in left if "near" not in self._checks.get(each, ())]
        is_sure = self._best is not None and not any(map(self._may_be_better, rivals))
        fits = {name: fit_spreads(columns) for name, columns in self._values.items()}
        findings = [self._finding(number, fits) for number in self._numbers]
        return Advice(self._best, is_sure, ended, self.rounds, findings)

    def _finding(self, number: int, fits: Mapping[str, Fitted]) -> Finding:
        standing, reason = self._standing(number)
        ratio = self._ratios.get(number)
        return Finding(
            standing,
            len(self._seconds[number]),
            self._ranges(number, fits),
            Range(*map(_exp, ratio)) if ratio else None,
            tuple(self._checks.get(number, ())),
            reason,
        )

    def _standing(self, number: int) -> tuple[Standing, str]:
        if number in self._out:
            return self._out[number]
        if number == self._best:
            return "best", ""
        if not self._seconds[number]:
            return "unmeasured", ""
        checks = self._checks.get(number)
        if checks is None or "open" in checks:
            return "open", ""
        return ("near" if "near" in checks else "alike"), ""

    def _ranges(self, number: int, fits: Mapping[str, Fitted]) -> dict[str, Range]:
        """Return the mean and the 95 % interval of each quantity that has values."""
        found = {}
        for name, columns in self._values.items():
            if columns[number]:
                fitted = fits[name]
                logs = range_of(columns[number], fitted.spreads[number], fitted.rounds, _SHOWN_RISK)
                found[name] = Range(*(_exp(each) for each in logs))
        return found


def _log(value: float) -> float:
    return math.inf if value == math.inf else math.log(max(value, _LEAST))


def _exp(value: float) -> float:
    try:
        return math.exp(value)
    except OverflowError:
        return math.inf


def _mean(column: Column) -> float:
    return fmean(column.values()) if column else 0.0


def _mean_difference(a: Column, b: Column) -> float:
    """Return the mean of b - a over the rounds of both, else the difference of their means."""
    paired = [b[turn] - a[turn] for turn in a if turn in b]
    return fmean(paired) if paired else _mean(b) - _mean(a)
