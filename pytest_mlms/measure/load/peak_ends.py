"""The second part of the search for a peak: fresh processes that show the ends of the answer.

An end that they don't show gets more load, where the budget has it, or is moved outwards.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from pytest_mlms.manifest.scenarios import HIGHEST_RATE, LOWEST_RATE
from pytest_mlms.measure.load.evidence import Outcome, multiple_to_decide
from pytest_mlms.measure.load.peak_records import (
    PROCESSES,
    Drive,
    OpenProcess,
    PeakPlan,
    rounded_rate,
)
from pytest_mlms.measure.load.rate_evidence import CERTAIN, RateEvidence

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
