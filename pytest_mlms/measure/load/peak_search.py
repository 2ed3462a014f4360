"""The first part of the search for a peak: bracket and bisection, in one process.

Runs are short, and one that decides nothing counts for the side that it leans to.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from pytest_mlms.manifest.scenarios import HIGHEST_RATE, LOWEST_RATE
from pytest_mlms.measure.load.evidence import Criterion, Flags, Outcome
from pytest_mlms.measure.load.peak_records import Drive, PeakPlan, rounded_rate
from pytest_mlms.measure.load.rate_evidence import CERTAIN, RateEvidence

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
