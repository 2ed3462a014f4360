"""The highest rate of queries at which a latency limit is met: a search over runs of load.

The search first brackets the rate by factors of 2 and bisects the bracket, in one process. Its
runs there are short, and one that decides nothing counts for the side that it leans to. Three
fresh processes then show the ends of the answer: the lower one good, the upper one bad. An end that
they don't show gets more load, where the budget has it, or is moved outwards.

The module knows no agent: a process is a function that puts a number of queries at a rate on it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from pytest_mlms.load.evidence import Criterion, Flags, Outcome, judge_rate, multiple_to_decide

__all__ = [
    "PROCESSES",
    "Drive",
    "Load",
    "OpenProcess",
    "Peak",
    "PeakPlan",
    "Probe",
    "RateSummary",
    "find_peak",
]

PROCESSES = 3
"""Fresh processes that show each end of the answer."""

_HIGHEST = 1_000_000.0  # queries a second, LoadGen's and ours
_LOWEST = 0.001
_FACTOR = 2.0  # of the bracket
_HALVINGS = 12  # below the first rate
_CERTAIN = 1.5  # times the least queries that a good rate takes
_DIGITS = 4  # of a rate
_COARSER = (1, 2, 4)  # times the precision, for an answer from little load
_RUNS = 8  # that show a good rate: those of a search
_MOST_MORE = 0.8  # of the rest of the budget, for more load at an end


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

    ``over`` has a flag for each query in the scheduled order. ``seconds`` is what the run took.
    ``untrusted`` says why it can't be trusted, such as a load generator that was late.
    """

    over: Flags
    seconds: float
    untrusted: str = ""


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


def find_peak(
    plan: PeakPlan, open_process: OpenProcess, keep: Callable[[Probe], None] = lambda probe: None
) -> Peak:
    """Search the highest rate that meets the limit.

    ``keep`` gets each run of load as soon as it is measured, so that nothing is lost where the
    search is interrupted. Errors of a process are raised as they are.
    """
    if plan.criterion.limit <= plan.fastest:
        reason = (
            f"the limit of {plan.criterion.limit * 1e3:.4g} ms is below the fastest call "
            f"({plan.fastest * 1e3:.4g} ms); no rate can meet it: raise the limit"
        )
        return Peak(0.0, math.inf, False, (), (), 0.0, reason)
    record = _Record(plan, keep)
    with open_process() as drive:
        low, high = _Search(plan, record, drive).run()
    if low and not math.isinf(high):
        _Ends(plan, record, open_process, low, high).show()
    return _answer(plan, record)


class _Record:
    """All runs of load of a search, by rate and process.

    ``criterion`` judges them. Its precision is a coarser one where the budget is small.
    """

    def __init__(self, plan: PeakPlan, keep: Callable[[Probe], None]) -> None:
        self._plan = plan
        self._keep = keep
        self.criterion = _affordable(plan)
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
        over = int(load.over.sum())
        outcome = Outcome.UNTRUSTED if load.untrusted else self.outcome(rate)
        probe = Probe(
            rate, self.process, len(load.over), over, load.seconds, outcome, load.untrusted
        )
        self._keep(probe)
        return load

    def outcome(self, rate: float) -> Outcome:
        """Return what all runs at a rate say: it isn't good where it is bad in a process."""
        runs = self._runs[rate]
        if any(load.untrusted for _, load in runs):
            return Outcome.UNTRUSTED
        together = judge_rate(self.flags(rate), rate, self.criterion)
        if together is not Outcome.GOOD:
            return together
        for process in self.processes(rate):
            own = [load.over for number, load in runs if number == process]
            if judge_rate(own, rate, self.criterion) is Outcome.BAD:
                return Outcome.UNDECIDED
        return together

    def flags(self, rate: float) -> list[Flags]:
        """Return the flags of all runs at a rate."""
        return [load.over for _, load in self._runs[rate]]

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


def _affordable(plan: PeakPlan) -> Criterion:
    """Return the criterion with a precision that the budget seems to allow at the first rate."""
    criterion = plan.criterion
    for factor in _COARSER:
        criterion = plan.criterion._replace(precision=factor * plan.criterion.precision)
        if _RUNS * criterion.least_queries(plan.start) / plan.start <= plan.budget:
            break
    return criterion


class _Search:
    """The search in one process: bracket and bisection."""

    def __init__(self, plan: PeakPlan, record: _Record, drive: Drive) -> None:
        self._plan = plan
        self._record = record
        self._drive = drive

    def run(self) -> tuple[float, float]:
        """Return a rate that seems good, 0 if none does, and one that seems bad, or infinity."""
        low, high = self._bracket()
        if not low or math.isinf(high):
            return low, high
        while high / low > 1 + self._plan.criterion.precision:
            middle = _rounded(math.sqrt(low * high))
            if not low < middle < high or not self._affords(middle, self._reserve(low)):
                break
            if self._seems_good(middle):
                low = middle
            else:
                high = middle
        return low, high

    def _reserve(self, rate: float) -> float:
        """Return the seconds that fresh processes will take at both ends."""
        return 2 * _CERTAIN * self._least_seconds(rate)

    def _bracket(self) -> tuple[float, float]:
        """Return a rate that seems good, 0 if none does, and the next one, which seems bad."""
        start = _rounded(min(max(self._plan.start, _LOWEST), _HIGHEST))
        if self._seems_good(start):
            return self._bracket_upwards(start)
        above = self._good_above(start)
        return self._bracket_upwards(above) if above else self._bracket_downwards(start)

    def _good_above(self, start: float) -> float:
        """Return a rate above a bad one that seems good, 0 if there is none.

        A batcher's batches fill faster at a higher rate. Too high a rate is bad by a short run.
        """
        for factor in (_FACTOR, _FACTOR**2):
            rate = _rounded(factor * start)
            if rate <= _HIGHEST and self._seems_good(rate):
                return rate
        return 0.0

    def _bracket_downwards(self, high: float) -> tuple[float, float]:
        for _ in range(_HALVINGS):
            low = _rounded(high / _FACTOR)
            if low < _LOWEST or not self._affords(low):
                break
            if self._seems_good(low):
                return low, high
            high = low
        return 0.0, high

    def _bracket_upwards(self, low: float) -> tuple[float, float]:
        while low < _HIGHEST:
            high = _rounded(min(_FACTOR * low, _HIGHEST))
            if not self._seems_good(high):
                return low, high
            low = high
        return low, math.inf

    def _least_seconds(self, rate: float) -> float:
        return self._record.criterion.least_queries(rate) / rate

    def _affords(self, rate: float, reserve: float = 0.0) -> bool:
        """Return whether there is time for the queries of a good rate, and the reserve."""
        return self._least_seconds(rate) + reserve <= self._record.left

    def _seems_good(self, rate: float) -> bool:
        """Put load on the process until it is decided, or long enough; return where it leans to."""
        record = self._record
        criterion = self._record.criterion
        outcome = record.drive(self._drive, rate, criterion.first_queries(rate))
        rest = criterion.least_queries(rate) - record.queries(rate)
        if outcome is Outcome.UNDECIDED and rest > 0 and self._affords(rate):
            rest = max(rest, criterion.first_queries(rate))
            outcome = record.drive(self._drive, rate, rest)
        if outcome is Outcome.UNDECIDED:
            return _leans_to_good(record.flags(rate), criterion)
        return outcome is Outcome.GOOD


class _End:
    """One end of the answer: a rate that fresh processes are to show good, or bad."""

    def __init__(self, rate: float, wanted: Outcome, step: float) -> None:
        self.rate = _rounded(rate)
        self.wanted = wanted
        self.multiple = _CERTAIN
        self._step = step

    def move(self, wrong: bool) -> None:
        """Move the end outwards, by more each time that it was wrong."""
        sign = -1 if self.wanted is Outcome.GOOD else 1
        self.rate = _rounded(self.rate * math.exp(sign * self._step))
        self.rate = min(max(self.rate, _LOWEST), _HIGHEST)
        self.multiple = _CERTAIN
        if wrong:
            self._step *= 2


class _Ends:
    """Fresh processes that show both ends of the answer."""

    def __init__(
        self,
        plan: PeakPlan,
        record: _Record,
        open_process: OpenProcess,
        low: float,
        high: float,
    ) -> None:
        self._plan = plan
        self._record = record
        self._open_process = open_process
        middle = math.sqrt(low * high)
        step = math.log1p(record.criterion.precision)
        precision = record.criterion.precision
        low = min(low, middle / (1 + precision))
        high = max(high, middle * (1 + precision))
        self._low = _End(low, Outcome.GOOD, step)
        self._high = _End(high, Outcome.BAD, step)

    def show(self) -> None:
        """Run load in fresh processes until both ends are shown, or the budget is spent."""
        pending = [self._low, self._high]
        while pending and self._affords(pending):
            self._run(pending)
            for end in pending:
                self._review(end)
            pending = [end for end in (self._low, self._high) if not self._is_shown(end)]

    def _is_shown(self, end: _End) -> bool:
        """Return whether enough processes showed the end, or never can."""
        record = self._record
        if record.queries(end.rate) == 0:
            return False
        outcome = record.outcome(end.rate)
        if outcome is Outcome.UNTRUSTED:
            return end.wanted is Outcome.BAD
        return outcome is end.wanted and len(record.processes(end.rate)) >= PROCESSES

    def _queries(self, end: _End) -> int:
        """Return the queries that the end gets from each process, for its pass."""
        wanted = end.multiple * self._record.criterion.least_queries(end.rate)
        least = self._record.criterion.first_queries(end.rate)
        return max(least, math.ceil((wanted - self._record.queries(end.rate)) / PROCESSES))

    def _seconds(self, ends: Iterable[_End]) -> float:
        return sum(PROCESSES * self._queries(end) / end.rate for end in ends)

    def _affords(self, ends: Sequence[_End]) -> bool:
        """Return whether the budget has time for a pass; a first one is cut down to it."""
        if self._seconds(ends) <= self._record.left:
            return True
        if self._record.process == 0:
            share = self._record.left / self._seconds(ends)
            for end in ends:
                end.multiple *= share
            return share > 0
        return False

    def _run(self, ends: Sequence[_End]) -> None:
        """Run load at the ends in as many fresh processes as planned."""
        queries = {end: self._queries(end) for end in ends}
        for _ in range(PROCESSES):
            self._record.process += 1
            with self._open_process() as drive:
                for end in ends:
                    self._drive(drive, end, queries[end])

    def _drive(self, drive: Drive, end: _End, queries: int) -> None:
        """Put load on a process: little where other processes showed the end already."""
        record = self._record
        first = self._record.criterion.first_queries(end.rate)
        if record.drive(drive, end.rate, first) is not end.wanted and queries > first:
            record.drive(drive, end.rate, queries - first)

    def _review(self, end: _End) -> None:
        """Give an end that is not shown more load, or move it."""
        record = self._record
        outcome = record.outcome(end.rate)
        if self._is_shown(end):
            return
        if outcome in (Outcome.GOOD, Outcome.BAD):
            if outcome is not end.wanted:
                end.move(wrong=True)
            return
        multiple = multiple_to_decide(record.flags(end.rate), end.rate, self._record.criterion)
        queries = record.queries(end.rate)
        if multiple and (multiple - 1) * queries / end.rate <= _MOST_MORE * record.left:
            least = self._record.criterion.least_queries(end.rate)
            end.multiple = multiple * queries / least
        else:
            end.move(wrong=False)


def _answer(plan: PeakPlan, record: _Record) -> Peak:
    """Return the answer by the precision asked for; by a coarser one where that has no answer."""
    answers = []
    for factor in _COARSER:
        precision = factor * plan.criterion.precision
        record.criterion = plan.criterion._replace(precision=precision)
        answer = _answer_by(plan, record)
        if answer.good and not math.isinf(answer.bad):
            return answer
        answers.append(answer)
    return answers[0]


def _answer_by(plan: PeakPlan, record: _Record) -> Peak:
    summaries = tuple(record.summary(rate) for rate in record.rates)
    low = max(_best(summaries, Outcome.GOOD), default=0.0)
    above = [summary for summary in summaries if summary.rate > low]
    high = min(_best(above, Outcome.BAD), default=math.inf)
    by_rate = {summary.rate: summary for summary in summaries}
    ends = [by_rate[rate] for rate in (low, high) if rate in by_rate]
    bad = _rates_with(summaries, Outcome.BAD)
    return Peak(
        good=low,
        bad=high,
        confirmed=len(ends) == 2 and all(end.processes >= PROCESSES for end in ends),
        rates=summaries,
        exceptions=tuple(rate for rate in bad if rate * (1 + plan.criterion.precision) < low),
        seconds=record.seconds,
        reason=_reason(plan, summaries, low, high),
    )


def _best(summaries: Sequence[RateSummary], outcome: Outcome) -> list[float]:
    """Return the rates with an outcome: those that fresh processes showed, if there are any."""
    shown = [summary for summary in summaries if summary.processes >= PROCESSES]
    return _rates_with(shown, outcome) or _rates_with(summaries, outcome)


def _reason(plan: PeakPlan, summaries: Sequence[RateSummary], low: float, high: float) -> str:
    """Say why the answer is wider than asked for; "" where it is not."""
    if low and high / low <= (1 + plan.criterion.precision) ** 2 * (1 + 10.0 ** (1 - _DIGITS)):
        return ""
    late = _rates_with(summaries, Outcome.UNTRUSTED)
    if late:
        return (
            f"the load generator was late at {min(late):g} /s, so that nothing follows from "
            f"that load; give it a core of its own, or a longer limit"
        )
    if not low:
        return f"no rate from {summaries[0].rate:g} /s up was shown to meet the limit"
    if math.isinf(high):
        return f"no rate up to {summaries[-1].rate:g} /s was shown to break the limit"
    return (
        f"{plan.budget:g} s of load show the peak to {100 * (math.sqrt(high / low) - 1):.2g} % "
        f"only; allow more with --mlms-budget, or ask for less precision"
    )


def _rates_with(summaries: Sequence[RateSummary], outcome: Outcome) -> list[float]:
    return [summary.rate for summary in summaries if summary.outcome is outcome]


def _leans_to_good(runs: Sequence[Flags], criterion: Criterion) -> bool:
    queries = sum(map(len, runs))
    over = sum(int(run.sum()) for run in runs)
    return over <= queries * (1 - criterion.share)


def _rounded(rate: float) -> float:
    """Return a rate with as many digits as people are shown, so that it can be tried again."""
    return float(f"{rate:.{_DIGITS}g}")
