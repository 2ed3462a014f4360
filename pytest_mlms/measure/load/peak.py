"""The highest rate of queries at which a latency limit is met: a search over runs of load.

The search first brackets the rate by factors of 2 and bisects the bracket, in one process. Three
fresh processes then show the ends of the answer: the lower one good, the upper one bad.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from pytest_mlms.manifest.scenarios import HIGHEST_RATE, LOWEST_RATE
from pytest_mlms.measure.load.evidence import Criterion, Flags, Outcome, multiple_to_decide
from pytest_mlms.measure.load.rate_evidence import (
    CERTAIN,
    COARSER,
    PROCESSES,
    Drive,
    OpenProcess,
    Peak,
    PeakPlan,
    Probe,
    RateEvidence,
    RateSummary,
    rounded_rate,
)

_FACTOR = 2.0  # of the bracket
_HALVINGS = 12  # below the first rate


class PeakSearch:
    """The search in one process: bracket and bisection."""

    def __init__(self, plan: PeakPlan, record: RateEvidence, drive: Drive) -> None:
        self._plan = plan
        self._record = record
        self._drive = drive

    def run(self) -> tuple[float, float]:
        """Return a rate that seems good, 0 if none does, and one that seems bad, or infinity."""
        low, high = self._bracket()
        if not low or math.isinf(high):
            return low, high
        while high / low > 1 + self._plan.criterion.precision:
            middle = rounded_rate(math.sqrt(low * high))
            if not low < middle < high or not self._affords(middle, self._reserve(low)):
                break
            if self._seems_good(middle):
                low = middle
            else:
                high = middle
        return low, high

    def _reserve(self, rate: float) -> float:
        """Return the seconds that fresh processes will take at both ends."""
        return 2 * CERTAIN * self._least_seconds(rate)

    def _bracket(self) -> tuple[float, float]:
        """Return a rate that seems good, 0 if none does, and the next one, which seems bad."""
        start = rounded_rate(min(max(self._plan.start, LOWEST_RATE), HIGHEST_RATE))
        if self._seems_good(start):
            return self._bracket_upwards(start)
        above = self._good_above(start)
        return self._bracket_upwards(above) if above else self._bracket_downwards(start)

    def _good_above(self, start: float) -> float:
        """Return a rate above a bad one that seems good, 0 if there is none.

        A batcher's batches fill faster at a higher rate. Too high a rate is bad by a short run.
        """
        for factor in (_FACTOR, _FACTOR**2):
            rate = rounded_rate(factor * start)
            if rate <= HIGHEST_RATE and self._seems_good(rate):
                return rate
        return 0.0

    def _bracket_downwards(self, high: float) -> tuple[float, float]:
        for _ in range(_HALVINGS):
            low = rounded_rate(high / _FACTOR)
            if low < LOWEST_RATE or not self._affords(low):
                break
            if self._seems_good(low):
                return low, high
            high = low
        return 0.0, high

    def _bracket_upwards(self, low: float) -> tuple[float, float]:
        while low < HIGHEST_RATE:
            high = rounded_rate(min(_FACTOR * low, HIGHEST_RATE))
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


def _leans_to_good(runs: Sequence[Flags], criterion: Criterion) -> bool:
    queries = sum(map(len, runs))
    over = sum(int(run.sum()) for run in runs)
    return over <= queries * (1 - criterion.share)


_MOST_MORE = 0.8  # of the rest of the budget, for more load at an end


class _End:
    """One end of the answer: a rate that fresh processes are to show good, or bad."""

    def __init__(self, rate: float, wanted: Outcome, step: float) -> None:
        self.rate = rounded_rate(rate)
        self.wanted = wanted
        self.multiple = CERTAIN
        self._step = step

    def move(self, wrong: bool) -> None:
        """Move the end outwards, by more each time that it was wrong."""
        sign = -1 if self.wanted is Outcome.GOOD else 1
        self.rate = rounded_rate(self.rate * math.exp(sign * self._step))
        self.rate = min(max(self.rate, LOWEST_RATE), HIGHEST_RATE)
        self.multiple = CERTAIN
        if wrong:
            self._step *= 2


class PeakEnds:
    """Fresh processes that show both ends of the answer."""

    def __init__(
        self,
        plan: PeakPlan,
        record: RateEvidence,
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


_ROUNDING = 1e-3  # of rates with four digits


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
    record = RateEvidence(plan, keep)
    with open_process() as drive:
        low, high = PeakSearch(plan, record, drive).run()
    if low and not math.isinf(high):
        PeakEnds(plan, record, open_process, low, high).show()
    return _answer(plan, record)


def _answer(plan: PeakPlan, record: RateEvidence) -> Peak:
    """Return the answer by the precision asked for; by a coarser one where that has no answer."""
    answers = []
    for factor in COARSER:
        precision = factor * plan.criterion.precision
        record.criterion = plan.criterion._replace(precision=precision)
        answer = _answer_by(plan, record)
        if answer.good and not math.isinf(answer.bad):
            return answer
        answers.append(answer)
    return answers[0]


def _answer_by(plan: PeakPlan, record: RateEvidence) -> Peak:
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
    if low and high / low <= (1 + plan.criterion.precision) ** 2 * (1 + _ROUNDING):
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
