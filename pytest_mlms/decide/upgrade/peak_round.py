"""The peaks of both sides in a round: searched on the same arrivals, in turns."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean

import numpy as np

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.quantities import QUANTITIES
from pytest_mlms.core.records import Comparison, Verdict
from pytest_mlms.core.units import format_quantity
from pytest_mlms.decide.upgrade.figures import Figure
from pytest_mlms.decide.upgrade.round_load import LoadRunner, RoundLoad, log_ratio
from pytest_mlms.decide.upgrade.round_record import PeakRecord, TriedRate
from pytest_mlms.decide.upgrade.rounds import SIDES, Array, SideName
from pytest_mlms.measure.evaluate.load_plan import LoadItemPlan
from pytest_mlms.measure.load.arrivals import poisson_arrivals
from pytest_mlms.measure.load.early_stopping import queries_needed
from pytest_mlms.measure.load.evidence import LATE_SHARE
from pytest_mlms.measure.load.rate_search import STEEPNESS, Crossing, RateSearch

_RUNS = 6  # of both sides in a round, as simulated
_FIRST_RUNS = 12  # of a side at most, in the first round
_LATER_RUNS = 6
_LIMITS = 10  # times the limit that a run lasts at least
_MOST = 4  # times the queries that a run takes


class _SideSearch:
    """The search of one side's peak, a run of load at a time."""

    def __init__(
        self,
        side: SideName,
        runner: LoadRunner,
        plan: LoadItemPlan,
        search: RateSearch,
        queries: int,
        draw: int,
    ) -> None:
        self._side = side
        self._runner = runner
        self._plan = plan
        self._search = search
        self._queries = queries
        self._draw = draw
        self._tried: list[TriedRate] = []

    @property
    def crossing(self) -> Crossing:
        """The peak by the runs so far."""
        return self._search.crossing()

    @property
    def record(self) -> PeakRecord:
        """The peak, and each rate that was tried."""
        found = self.crossing
        tried = tuple(self._tried)
        return PeakRecord(found.rate, found.good, found.bad, tried, found.exceptions)

    def step(self) -> bool:
        """Put load on the side at the next rate; return False where there is none.

        Load that was issued late is repeated once: another program may have been the cause.
        """
        rate = self._search.next_rate()
        if rate is None:
            return False
        tried = self._try(rate)
        if tried.late:
            tried = self._try(rate)
        limit = _limit_of(self._plan)
        self._search.add(rate, tried.latency / limit)
        return True

    def _try(self, rate: float) -> TriedRate:
        seed = self._plan.seed + self._draw
        arrivals = poisson_arrivals(rate, seed, 0, self._queries)
        queries = self._plan.scheduled(arrivals, seed, self._runner.samples)
        load = self._runner.serve(self._side, queries, seed)
        latency = load.latency(self._plan.share)
        late = load.record.issue_delay > LATE_SHARE * _limit_of(self._plan)
        self._tried.append(TriedRate(rate, latency, late))
        return self._tried[-1]


class PeakSearches:
    """The searches of both sides' peaks, round by round.

    ``seconds`` is the time that the load of a round may take. The first round begins at the rate of
    calls back to back, and each further one at the peak of the one before.
    """

    def __init__(self, plan: LoadItemPlan, seconds: float) -> None:
        self._plan = plan
        self._limit = _limit_of(plan)
        self._seconds = seconds
        self._found: Sequence[Crossing] = ()

    def run(self, runner: LoadRunner, order: Sequence[SideName], draw: int) -> RoundLoad:
        """Search both peaks in turns; ``draw`` is added to the plan's seed.

        Raises MlmsError where the budget can't have the queries that the percentile takes, or where
        the baseline has no peak, and LoadLost where an agent ended.
        """
        if not self._found:
            calls = {side: runner.call_seconds(side) for side in order}
            reason = self._too_slow(calls)
            if reason:
                return RoundLoad({}, {}, without_peak=reason)
            start = self._capacity(calls)
            self._check(start)
        else:
            start = math.exp(fmean(math.log(found.rate) for found in self._found))
        queries = self._queries(start)
        searches = {
            side: _SideSearch(side, runner, self._plan, self._search(start, queries), queries, draw)
            for side in order
        }
        pending = list(order)
        while pending:
            pending = [side for side in pending if searches[side].step()]
        self._found = [searches[side].crossing for side in SIDES]
        peaks = {side: searches[side].record for side in SIDES}
        return RoundLoad(runner.runs, peak_figures(peaks, queries), peaks)

    def _too_slow(self, calls: Mapping[SideName, Array]) -> str:
        """Return why the candidate has no peak, "" where it may: calls alone may break the limit.

        Raises MlmsError where the baseline's do: then there is nothing to compare with.
        """
        fastest = {side: float(calls[side].min()) for side in SIDES}
        limit = format_quantity(self._limit, "s")
        if fastest["a"] > self._limit:
            raise MlmsError(
                f"{self._plan.place}: the limit of {limit} is below the baseline's fastest call "
                f"({format_quantity(fastest['a'], 's')}), so it has no peak; raise the latency"
            )
        if fastest["b"] <= self._limit:
            return ""
        a, b = (format_quantity(fastest[side], "s") for side in SIDES)
        return f"the fastest call takes A {a}, B {b}: B meets the limit of {limit} at no rate"

    def _capacity(self, calls: Mapping[SideName, Array]) -> float:
        """Return the rate of calls back to back, of the slower side."""
        slower = max(float(np.median(calls[side])) for side in SIDES)
        return self._plan.instances / slower

    def _check(self, rate: float) -> None:
        """Raise MlmsError where a round has no time for the queries of the searches."""
        least = self._least(rate)
        seconds = _RUNS * least / rate
        if seconds <= self._seconds:
            return
        budget = math.ceil(seconds / self._seconds * self._plan.longest * self._plan.processes)
        raise MlmsError(
            f"{self._plan.place}: p{100 * self._plan.share:g} takes {least:,} queries in each run "
            f"of load, and a round {_RUNS} runs: {seconds:,.3g} s at {rate:,.4g} /s, of which "
            f"--mlms-budget allows {self._seconds:,.3g} s; raise it to {budget:,}, or write a "
            f"lower percentile"
        )

    def _search(self, start: float, queries: int) -> RateSearch:
        steepness = STEEPNESS
        if self._found:
            steepness = fmean(found.steepness for found in self._found)
        return RateSearch(
            start,
            lowest=queries / self._seconds,
            steepness=steepness,
            upwards=self._plan.batcher is not None,
            runs=_LATER_RUNS if self._found else _FIRST_RUNS,
        )

    def _least(self, rate: float) -> int:
        """Return the queries that a run takes."""
        return max(queries_needed(self._plan.share), math.ceil(_LIMITS * self._limit * rate))

    def _queries(self, rate: float) -> int:
        """Return the queries of a run: those that the time allows, within limits."""
        least = self._least(rate)
        return min(max(least, int(self._seconds * rate / _RUNS)), _MOST * least)


def peak_figures(peaks: Mapping[SideName, PeakRecord], queries: int) -> dict[str, Figure]:
    """Return the ratio of both sides' peaks, each by runs of so many queries.

    It says nothing where the load generator was late at an end of a peak, or where neither side
    was within the limit at any rate. Where one side wasn't, the lowest rate that was tried stands
    for its peak: the other one is better by more than that.
    """
    a = peaks["a"]
    b = peaks["b"]
    has_peak = a.good > 0 or b.good > 0
    is_valid = has_peak and not a.late and not b.late
    return {"peak_rate": log_ratio(a.rate, b.rate, queries, is_valid)}


def without_peak(reason: str, tolerance: float) -> Comparison:
    """Return the comparison where no rate of queries is good for the candidate."""
    return Comparison(
        quantity="peak_rate",
        a=math.nan,
        b=0.0,
        unit=QUANTITIES["peak_rate"].unit,
        tolerance=tolerance,
        gate=True,
        replicates=1,
        of="calls",
        lacking=reason,
        verdict=Verdict.REGRESSED,
    )


def _limit_of(plan: LoadItemPlan) -> float:
    assert plan.criterion is not None, "a peak has a limit"
    return plan.criterion.value
