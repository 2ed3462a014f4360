"""The load of a round: runs of queries on both sides in turns, and what is kept of them.

The same queries give the latency and the rate of both sides; a search gives their peaks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Protocol

import numpy as np

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.quantities import QUANTITIES
from pytest_mlms.core.records import Comparison, PeakRecord, TriedRate, Verdict
from pytest_mlms.core.units import format_quantity
from pytest_mlms.decide.upgrade.agents import AgentPair, TurnPlan
from pytest_mlms.decide.upgrade.figures import Figure
from pytest_mlms.decide.upgrade.rounds import SIDES, Array, SideName
from pytest_mlms.measure.agent.load import LoadInterrupted, LoadLost, LoadPlan, LoadRun
from pytest_mlms.measure.evaluate.load_plan import LoadItemPlan
from pytest_mlms.measure.evaluate.load_process import (
    QueryTimes,
    limited,
    load_record,
    query_times,
)
from pytest_mlms.measure.evaluate.process_result import LoadRecord
from pytest_mlms.measure.load.arrivals import poisson_arrivals
from pytest_mlms.measure.load.evidence import LATE_SHARE
from pytest_mlms.measure.load.loadgen import loadgen_percentile, queries_needed
from pytest_mlms.measure.load.rate_search import STEEPNESS, Crossing, RateSearch

_NANO = 1e-9
_MOST_CALLS = 30  # that are timed ahead of a load
_CALLS_SECONDS = 1.0  # that they may take


@dataclass(frozen=True, eq=False)
class SideLoad:
    """A run of load on one side: the times of all queries, and what is recorded of it."""

    times: QueryTimes
    record: LoadRecord

    def latency(self, share: float) -> float:
        """Return LoadGen's percentile of the latencies, in seconds."""
        return loadgen_percentile(np.sort(self.times.latencies), share) * _NANO

    def excess(self, plan: LoadItemPlan) -> float:
        """Return LoadGen's percentile over the limit on it, the largest of the scenario's.

        Raises OutputError where a limit is on further tokens, and no answer has any.
        """
        return max(
            loadgen_percentile(np.sort(values), plan.share) * _NANO / limit.value
            for limit, values in limited(plan, self.times)
        )


@dataclass(frozen=True, eq=False)
class RoundLoad:
    """The load of a round.

    Attributes:
        runs: The runs of load: "a" is the first one on side A, "a2" the second.
        figures: The quantities that they gave, by name.
        peaks: The peak of each side, where it was searched.
        without_peak: The reason why the candidate has no peak, "" otherwise.
    """

    runs: Mapping[str, SideLoad]
    figures: Mapping[str, Figure]
    peaks: Mapping[SideName, PeakRecord] = field(default_factory=dict)
    without_peak: str = ""

    @property
    def records(self) -> Mapping[str, LoadRecord]:
        """The record of each run, by its name."""
        return {name: run.record for name, run in self.runs.items()}


class LoadRunner:
    """Puts queries on the sides of a pair, and has the times of all of them."""

    def __init__(self, pair: AgentPair) -> None:
        self._pair = pair
        self._runs: dict[str, SideLoad] = {}
        self._times: dict[str, QueryTimes] = {}

    @property
    def runs(self) -> Mapping[str, SideLoad]:
        """The runs that came to their end, by name."""
        return self._runs

    @property
    def samples(self) -> int:
        """The number of samples that queries choose from."""
        return len(self._pair.batches)

    def serve(self, side: SideName, queries: LoadPlan, seed: int) -> SideLoad:
        """Put queries on a side.

        Raises LoadLost where its agent ended, and KeyboardInterrupt at Ctrl-C.
        """
        number = 1 + sum(name[0] == side for name in self._times)
        name = side if number == 1 else f"{side}{number}"
        try:
            with self._pair.running(side) as predictor:
                run = predictor.load_run(self._pair.batches, queries)
        except LoadLost as error:
            self._times[name] = _received(error.run)
            raise
        except LoadInterrupted as error:
            self._times[name] = _received(error.run)
            raise KeyboardInterrupt from error  # pytest shows the name of the class
        times = query_times(queries, run)
        self._times[name] = times
        self._runs[name] = SideLoad(times, load_record(run, times, seed=seed, runs=1))
        return self._runs[name]

    def call_seconds(self, side: SideName) -> Array:
        """Return the seconds of some calls of a side without other load."""
        first = _seconds(self._pair, side, 1)
        count = int(_CALLS_SECONDS / float(first[0]))
        return _seconds(self._pair, side, max(1, min(_MOST_CALLS, count)))

    def arrays(self) -> dict[str, Array]:
        """Return the times of all queries in nanoseconds, also of a run that was cut off."""
        arrays: dict[str, Array] = {}
        for name, times in self._times.items():
            arrays[f"query_scheduled_{name}"] = times.scheduled
            arrays[f"query_issued_{name}"] = times.issued
            arrays[f"query_done_{name}"] = times.done
        return arrays


class LoadStrategy(Protocol):
    """The load that each round has; it may remember what earlier rounds gave."""

    def run(self, runner: LoadRunner, order: Sequence[SideName], draw: int) -> RoundLoad:
        """Put load on both sides in ``order``; ``draw`` is added to the seed of queries."""


def log_ratio(a: float, b: float, calls: int, is_valid: bool = True) -> Figure:
    """Return the figure of a quantity of which the rounds are the samples."""
    return Figure(a, b, math.log(b / a), 0.0 if is_valid else math.inf, calls)


def _seconds(pair: AgentPair, side: SideName, count: int) -> Array:
    turn = pair.turn(side, TurnPlan(count))
    return np.asarray(turn.times["end"] - turn.times["start"])


def _received(run: LoadRun) -> QueryTimes:
    return QueryTimes(run.scheduled, run.issued, run.done, 0)


@dataclass(frozen=True, eq=False)
class LoadRound:
    """The load of both sides in a round.

    ``share`` is the percentile that is compared. ``limit`` is the shortest of the scenario that a
    late query could break, in seconds; None where there is none.
    """

    sides: Mapping[SideName, SideLoad]
    share: float
    limit: float | None = None

    @property
    def late(self) -> bool:
        """True if the load generator, and not the model, may have caused a side's latencies.

        That is where the p99 of its delay is above 5 % of the limit, or of the percentile itself.
        """
        return any(self._is_late(side) for side in self.sides.values())

    def _is_late(self, side: SideLoad) -> bool:
        limit = side.latency(self.share) if self.limit is None else self.limit
        return side.record.issue_delay > LATE_SHARE * limit

    def figures(self) -> dict[str, Figure]:
        """Return the quantities by name; a late load says nothing of them."""
        a = self.sides["a"]
        b = self.sides["b"]
        calls = len(a.times)
        is_valid = not self.late
        latencies = (a.latency(self.share), b.latency(self.share))
        figures = {"query_latency": log_ratio(*latencies, calls, is_valid)}
        if a.record.rate and b.record.rate:
            figures["query_rate"] = log_ratio(a.record.rate, b.record.rate, calls, is_valid)
        return figures


class SameQueries:
    """A load of the same queries on both sides, with new arrivals in each round."""

    def __init__(self, plan: LoadItemPlan) -> None:
        self._plan = plan

    def run(self, runner: LoadRunner, order: Sequence[SideName], draw: int) -> RoundLoad:
        """Put the queries on each side in ``order``; ``draw`` is added to the plan's seed.

        Raises LoadLost where an agent ended.
        """
        plan = self._plan
        queries = next(plan.runs(draw, runner.samples))
        sides = {side: runner.serve(side, queries, plan.seed + draw) for side in order}
        limit = plan.issue_limit
        measured = LoadRound(sides, plan.share, limit)
        return RoundLoad(runner.runs, measured.figures())


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
        excess = self._try(rate)
        if self._tried[-1].late:
            excess = self._try(rate)
        self._search.add(rate, excess)
        return True

    def _try(self, rate: float) -> float:
        """Put load on the side at a rate; return what ``SideLoad.excess`` says of it."""
        seed = self._plan.seed + self._draw
        arrivals = poisson_arrivals(rate, seed, 0, self._queries)
        queries = self._plan.scheduled(arrivals, seed, self._runner.samples)
        load = self._runner.serve(self._side, queries, seed)
        late = load.record.issue_delay > LATE_SHARE * (self._plan.issue_limit or math.inf)
        self._tried.append(TriedRate(rate, load.latency(self._plan.share), late))
        return load.excess(self._plan)


class PeakSearches:
    """The searches of both sides' peaks, round by round.

    ``seconds`` is the time that the load of a round may take. The first round begins at the rate of
    calls back to back, and each further one at the peak of the one before.
    """

    def __init__(self, plan: LoadItemPlan, seconds: float) -> None:
        self._plan = plan
        self._limit = plan.longest_limit
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
            slower = max(float(np.median(calls[side])) for side in SIDES)
            self._limit = self._plan.longest_delay(slower)
            start = self._plan.instances / slower
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
        longest = self._plan.limit_on("query_latency")
        if longest is None:
            return ""
        fastest = {side: float(calls[side].min()) for side in SIDES}
        limit = format_quantity(longest, "s")
        if fastest["a"] > longest:
            raise MlmsError(
                f"{self._plan.place}: the limit of {limit} is below the baseline's fastest call "
                f"({format_quantity(fastest['a'], 's')}), so it has no peak; raise the latency"
            )
        if fastest["b"] <= longest:
            return ""
        a, b = (format_quantity(fastest[side], "s") for side in SIDES)
        return f"the fastest call takes A {a}, B {b}: B meets the limit of {limit} at no rate"

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
    was within the limit at any rate, or beyond it. Where one side wasn't within it, the lowest
    rate that was tried stands for its peak: the other one is better by more than that.
    """
    a = peaks["a"]
    b = peaks["b"]
    has_peak = (a.good > 0 or b.good > 0) and not math.isinf(min(a.bad, b.bad))
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
