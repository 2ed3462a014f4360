"""Records of the search for a peak: its plan, its runs of load, and its answer.

The search knows no agent: a process is a function that puts a number of queries at a rate on it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from pytest_mlms.measure.load.evidence import Criterion, Flags, Outcome, judge_rate

PROCESSES = 3
"""Fresh processes that show each end of the answer."""

_DIGITS = 4  # of a rate


@dataclass(frozen=True)
class PeakPlan:
    """The aim of a search, and the load that it may take.

    Attributes:
        criterion: The limit, the share of queries that must meet it, and how far both ends of the
            answer may be from its middle.
        start: The first rate: the throughput of the offline scenario, or the inverse of a call.
        fastest: Seconds of the fastest call without other load.
        budget: Seconds of load.
    """

    criterion: Criterion
    start: float
    fastest: float
    budget: float


@dataclass(frozen=True, eq=False)
class Load:
    """A run of load as it was measured.

    ``over`` has a flag for each query in the scheduled order, of the first limit, and ``others``
    those of each further one. ``seconds`` is what the run took.
    ``untrusted`` says why it can't be trusted, such as a load generator that was late.
    """

    over: Flags
    seconds: float
    untrusted: str = ""
    others: Sequence[Flags] = ()


Drive = Callable[[float, int], Load]
"""Puts queries on a process: the rate in queries a second, and their number."""

OpenProcess = Callable[[], AbstractContextManager[Drive]]
"""Starts a fresh process."""


@dataclass(frozen=True)
class Probe:
    """The record of a run of load: its process, counted from 0, and how many were over the limit.

    ``outcome`` is what all runs at that rate said after it.
    """

    rate: float
    process: int
    queries: int
    over: int
    seconds: float
    outcome: Outcome
    untrusted: str = ""


@dataclass(frozen=True)
class RateSummary:
    """The load at one rate, over all runs and processes."""

    rate: float
    queries: int
    over: int
    processes: int
    outcome: Outcome


@dataclass(frozen=True)
class Peak:
    """The answer: the highest rate shown good, and the lowest rate above it shown bad.

    Attributes:
        good: The highest good rate, 0 where none was shown to be good.
        bad: The lowest bad rate above it, infinity where none was shown to be bad.
        confirmed: Whether as many fresh processes as planned showed both ends.
        rates: All rates that were tried, in ascending order.
        exceptions: Bad rates below ``good``: the outcomes are not monotone.
        seconds: Seconds of load.
        reason: Why there is no answer, or why it is wider than asked for; "" otherwise.
    """

    good: float
    bad: float
    confirmed: bool
    rates: tuple[RateSummary, ...]
    exceptions: tuple[float, ...]
    seconds: float
    reason: str = ""

    @property
    def rate(self) -> float:
        """The middle of the answer on a log scale; 0 or infinity where an end is missing."""
        return math.sqrt(self.good * self.bad) if self.good else 0.0

    @property
    def precision(self) -> float:
        """The distance of the ends from the middle, as a share of it."""
        return math.sqrt(self.bad / self.good) - 1 if self.good else math.inf


def rounded_rate(rate: float) -> float:
    """Return a rate with as many digits as people are shown, so that it can be tried again."""
    return float(f"{rate:.{_DIGITS}g}")


CERTAIN = 1.5
"""Times the least queries that a good rate takes."""

COARSER = (1, 2, 4)
"""Times the precision asked for, for an answer from little load."""

_WORSE = (Outcome.GOOD, Outcome.UNDECIDED, Outcome.BAD)
_RUNS = 8  # that show a good rate: those of a search


class RateEvidence:
    """All runs of load of a search, by rate and process.

    ``criterion`` judges them. Its precision is a coarser one where the budget is small.
    """

    def __init__(self, plan: PeakPlan, keep: Callable[[Probe], None]) -> None:
        self._plan = plan
        self._keep = keep
        criterion = plan.criterion
        for factor in COARSER:
            criterion = plan.criterion._replace(precision=factor * plan.criterion.precision)
            if _RUNS * criterion.least_queries(plan.start) / plan.start <= plan.budget:
                break
        self.criterion = criterion
        self._runs: dict[float, list[tuple[int, Load]]] = {}
        self.seconds = 0.0
        self.process = 0

    @property
    def left(self) -> float:
        """Seconds of the budget that are left."""
        return self._plan.budget - self.seconds

    @property
    def rates(self) -> list[float]:
        """The rates that were tried, in ascending order."""
        return sorted(self._runs)

    def drive(self, drive: Drive, rate: float, queries: int) -> Outcome:
        """Put load on a process; return what all runs at that rate say.

        Load that can't be trusted is repeated once, as another program may have been the cause.
        """
        load = self._drive_once(drive, rate, queries, is_last=False)
        if load.untrusted:
            self._drive_once(drive, rate, queries, is_last=True)
        return self.outcome(rate)

    def _drive_once(self, drive: Drive, rate: float, queries: int, is_last: bool) -> Load:
        load = drive(rate, queries)
        self.seconds += load.seconds
        if not load.untrusted or is_last:
            self._runs.setdefault(rate, []).append((self.process, load))
        over = max(int(flags.sum()) for flags in (load.over, *load.others))
        outcome = Outcome.UNTRUSTED if load.untrusted else self.outcome(rate)
        probe = Probe(
            rate, self.process, len(load.over), over, load.seconds, outcome, load.untrusted
        )
        self._keep(probe)
        return load

    def outcome(self, rate: float) -> Outcome:
        """Return what all runs at a rate say: it isn't good where it is bad in a process.

        It is good where it is so by each limit, and bad where it is by one.
        """
        if any(load.untrusted for _, load in self._runs[rate]):
            return Outcome.UNTRUSTED
        return self._worst(rate)[0]

    def flags(self, rate: float) -> list[Flags]:
        """Return the flags of all runs at a rate, by the limit that is farthest from being met."""
        return self._worst(rate)[1]

    def _worst(self, rate: float) -> tuple[Outcome, list[Flags]]:
        found = []
        for number in range(1 + len(self._runs[rate][0][1].others)):
            runs = [
                (process, (load.over, *load.others)[number]) for process, load in self._runs[rate]
            ]
            flags = [run for _, run in runs]
            share = sum(int(run.sum()) for run in flags) / max(1, sum(map(len, flags)))
            found.append((self._outcome_by(runs, rate), share, flags))
        outcome, _, flags = max(found, key=lambda each: (_WORSE.index(each[0]), each[1]))
        return outcome, flags

    def _outcome_by(self, runs: Sequence[tuple[int, Flags]], rate: float) -> Outcome:
        """Return what runs of processes say by one limit."""
        together = judge_rate([run for _, run in runs], rate, self.criterion)
        if together is not Outcome.GOOD:
            return together
        for process in self.processes(rate):
            own = [run for number, run in runs if number == process]
            if judge_rate(own, rate, self.criterion) is Outcome.BAD:
                return Outcome.UNDECIDED
        return together

    def processes(self, rate: float) -> set[int]:
        """Return the processes that had load at a rate."""
        return {process for process, _ in self._runs[rate]}

    def queries(self, rate: float) -> int:
        """Return the number of queries at a rate, 0 where it was not tried."""
        return sum(len(load.over) for _, load in self._runs.get(rate, ()))

    def summary(self, rate: float) -> RateSummary:
        """Return the load at a rate."""
        flags = self.flags(rate)
        over = sum(int(run.sum()) for run in flags)
        processes = len(self.processes(rate))
        return RateSummary(rate, sum(map(len, flags)), over, processes, self.outcome(rate))
