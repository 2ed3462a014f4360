"""Performance under load over fresh processes, each judged by LoadGen's rule; the peak's search."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from statistics import fmean

import numpy as np

from pytest_mlms.core.records import Decision, Estimate, Limit, Verdict
from pytest_mlms.core.statistics import rate_interval, student_interval
from pytest_mlms.core.units import format_quantity
from pytest_mlms.manifest.scenarios import Peak as PeakKeys
from pytest_mlms.measure.agent.load import LoadInterrupted, LoadLost
from pytest_mlms.measure.agent.predictor import Predictor, ScenarioRun
from pytest_mlms.measure.evaluate.doubts import withhold
from pytest_mlms.measure.evaluate.fresh_process import Batches, WarmUp, warm_up
from pytest_mlms.measure.evaluate.limits import QUIETER, judge, worst
from pytest_mlms.measure.evaluate.load_plan import LoadItemPlan
from pytest_mlms.measure.evaluate.load_process import (
    FastestCall,
    KeepPart,
    LoadResult,
    check_fastest,
    judge_queries,
    limited,
    measure_load_process,
    query_times,
    scenario_run,
    single_calls,
)
from pytest_mlms.measure.evaluate.performance import Ending, Measurement, has_value
from pytest_mlms.measure.evaluate.process_result import (
    ProcessResult,
    estimate_performance,
    unmeasured,
)
from pytest_mlms.measure.load.arrivals import poisson_arrivals
from pytest_mlms.measure.load.evidence import LATE_SHARE, Criterion, RunVerdict
from pytest_mlms.measure.load.loadgen import CONFIDENCE, worst_of
from pytest_mlms.measure.load.peak import find_peak
from pytest_mlms.measure.load.rate_evidence import Drive, Load, Peak, PeakPlan, Probe

_NANO = 1e-9
_DECISIVE = (Verdict.FAILED, Verdict.INVALID)


def measure_load(
    plan: LoadItemPlan,
    new_predictor: Callable[[], AbstractContextManager[Predictor]],
    batches_for: Callable[[Predictor], Batches],
    keep: Callable[[int, ProcessResult], None],
    keep_part: KeepPart,
) -> Measurement:
    """Load fresh processes one after the other, and return what they say together.

    Every one of them must meet the scenario's limit, so the first that doesn't is the last. There
    are more than the plan's while one of its limits is open and the budget lasts. ``keep`` gets the
    number and the result of each process when it is done, and ``keep_part`` what there is of one
    whose load does not come to its end. Raises MlmsError for a percentile that no process can have
    the queries for.
    """
    plan.check()

    def load_process(number: int) -> LoadResult:
        with new_predictor() as predictor:
            batches = batches_for(predictor)
            return measure_load_process(plan, predictor, batches, number, keep_part)

    try:
        began = time.monotonic()
        longest = 0.0
        results: list[LoadResult] = []
        for processes, confidence in plan.looks:
            for number in range(len(results), processes):
                started = time.monotonic()
                if number >= plan.processes and started - began + longest > plan.budget:
                    return _measurement(plan, results, confidence)
                result = load_process(number)
                longest = max(longest, time.monotonic() - started)
                results.append(result)
                keep(number, result)
                if any(each.verdict in _DECISIVE for each in result.verdicts.values()):
                    return _measurement(plan, results, confidence)
            measurement = _measurement(plan, results, confidence)
            if not any(_is_open(decision, plan) for decision in measurement.decisions):
                break
        return measurement
    except FastestCall as fastest:
        return without_load(plan, fastest)


def _is_open(decision: Decision, plan: LoadItemPlan) -> bool:
    """Return whether more processes may decide a limit; of the scenario's own, each one must."""
    is_undecided = decision.verdict is Verdict.INCONCLUSIVE and not decision.estimate.lacking
    return is_undecided and decision.limit in plan.limits


def without_load(plan: LoadItemPlan, fastest: FastestCall) -> Measurement:
    """Return the measurement of a model whose fastest call breaks the limit already."""
    estimate = Estimate(
        value=fastest.seconds,
        low=fastest.seconds,
        high=float("inf"),
        confidence=CONFIDENCE,
        replicates=fastest.calls,
        of="calls without load",
    )
    reason = "the fastest call alone takes longer, so no load was generated; raise the latency"
    decisions = []
    for limit in plan.criteria:
        if limit.quantity == "query_latency":
            decisions.append(Decision(limit, estimate, Verdict.FAILED, reason))
    return Measurement({"query_latency": estimate}, decisions, (), "decided", "")


def _measurement(
    plan: LoadItemPlan, results: Sequence[LoadResult], confidence: float
) -> Measurement:
    estimates = {
        **_load_estimates(results, confidence),
        **estimate_performance(results, confidence),
    }
    decisions = withhold(judge(plan.limits, estimates), results)
    for number, limit in enumerate(plan.criteria):
        decisions.insert(number, _decide_criterion(limit, results, estimates))
    measured = {name: found for name, found in estimates.items() if has_value(found)}
    return Measurement(measured, decisions, (), _ending(decisions), _doubts(results))


def _load_estimates(results: Sequence[LoadResult], confidence: float) -> dict[str, Estimate]:
    """Return the quantities that only a load has."""
    names = [name for result in results for name in result.bounds]
    estimates = {name: _percentile_estimate(name, results) for name in dict.fromkeys(names)}
    values: dict[str, list[float | None]] = {
        "query_rate": [result.load.rate for result in results],
        "goodput": [result.load.goodput for result in results],
        "queue_delay": [result.load.queue_delay for result in results],
        "issue_delay": [result.load.issue_delay for result in results],
    }
    for name, found in values.items():
        known = [value for value in found if value is not None]
        if len(known) < len(results):
            continue
        value, interval = fmean(known), student_interval(known, confidence)
        estimates[name] = _estimate(value, interval, confidence, len(results))
        if name in ("query_rate", "goodput") and all(known):
            seconds = [1 / rate for rate in known]
            value, interval = 1 / fmean(seconds), rate_interval(seconds, confidence)
            estimates[name] = _estimate(value, interval, confidence, len(results))
    return estimates


def _percentile_estimate(name: str, results: Sequence[LoadResult]) -> Estimate:
    """Return a percentile of queries in the slowest process."""
    bounds = [result.bounds.get(name) for result in results]
    found = [each for each in bounds if each is not None]
    if len(found) < len(results):
        is_each = name == "query_tpot"
        missing = "no answer has a second token" if is_each else "a process served no query"
        return unmeasured(missing, len(results), CONFIDENCE)
    slowest = worst_of(found)
    return Estimate(
        value=slowest.value * _NANO,
        low=slowest.low * _NANO,
        high=slowest.high * _NANO,
        confidence=CONFIDENCE,
        replicates=slowest.queries,
        of="queries of each process",
    )


def _estimate(
    value: float, interval: tuple[float, float], confidence: float, processes: int
) -> Estimate:
    return Estimate(value, *interval, confidence, processes, "processes")


def _decide_criterion(
    limit: Limit,
    results: Sequence[LoadResult],
    estimates: dict[str, Estimate],
) -> Decision:
    """Return the decision on a limit of the scenario, by its processes' verdicts."""
    estimate = estimates[limit.quantity]
    if estimate.lacking:
        return Decision(limit, estimate, Verdict.INCONCLUSIVE)
    verdicts = [result.verdicts[limit.quantity] for result in results]
    late = [verdict for verdict in verdicts if verdict.verdict is Verdict.INVALID]
    if late:
        delay = format_quantity(late[0].issue_delay * _NANO, "s")
        reason = (
            f"invalid: queries were issued {delay} late (p99), more than {100 * LATE_SHARE:.0f} % "
            f"of the limit, so the load generator may be the cause; {QUIETER}"
        )
        return Decision(limit, estimate, Verdict.INVALID, reason)
    verdict = worst([each.verdict for each in verdicts])
    if verdict is not Verdict.INCONCLUSIVE:
        return Decision(limit, estimate, verdict)
    return Decision(limit, estimate, verdict, f"{_open_reason(verdicts)}; raise --mlms-budget")


def _open_reason(verdicts: Sequence[RunVerdict]) -> str:
    """Say why the limit is open: too few queries, or too few independent ones."""
    held = [each for each in verdicts if each.independent]
    undecided = [each for each in verdicts if each.verdict is Verdict.INCONCLUSIVE]
    if held and len(held) == len(undecided):
        fewest = min(held, key=lambda verdict: verdict.independent)
        return (
            f"queries that wait for each other depend on each other: {fewest.queries:,} count as "
            f"{fewest.independent:,} here, which are too few"
        )
    missing = max(each.missing for each in verdicts)
    return f"LoadGen's rule takes {missing:,} further queries within the limit, or more"


def _ending(decisions: Sequence[Decision]) -> Ending:
    if not decisions:
        return "no limits"
    if any(decision.verdict is Verdict.INCONCLUSIVE for decision in decisions):
        return "budget"
    return "decided"


def _doubts(results: Sequence[LoadResult]) -> str:
    """Return a note on the processes for a person, "" where there is none."""
    unserved = sum(result.load.unserved for result in results)
    if unserved:
        queries = sum(result.load.queries for result in results)
        return f"{unserved:,} of {queries:,} queries were not served when the load ended"
    if not all(result.record.steady for result in results):
        return "warm-up did not reach a steady state"
    return ""


_SECOND = 1_000_000_000

KeepProbe = Callable[[int, ScenarioRun], None]
"""Keeps the times of a run of load by its number."""


def measure_peak(
    plan: LoadItemPlan,
    new_predictor: Callable[[], AbstractContextManager[Predictor]],
    batches_for: Callable[[Predictor], Batches],
    keep_run: KeepProbe,
    keep_part: KeepPart,
    note: Callable[[Sequence[Probe], Peak | None], None],
) -> Measurement:
    """Search the peak of a scenario, and return it with its interval.

    ``keep_run`` gets the times of each run of load, and ``note`` all runs so far and the answer
    when there is one. ``keep_part`` gets what was received of a run that did not come to its end.
    """
    measuring = _PeakMeasurement(plan, new_predictor, batches_for, keep_run, keep_part)
    probes: list[Probe] = []

    def keep(probe: Probe) -> None:
        probes.append(probe)
        note(probes, None)

    try:
        with measuring.open() as drive:
            asked = measuring.peak_plan()
            found = find_peak(asked, measuring.opener(drive), keep)
    except FastestCall as fastest:
        return without_load(plan, fastest)
    note(probes, found)
    rate = found.rate
    if math.isinf(rate):
        rate = found.good
    ends = [tried for tried in found.rates if tried.rate in (found.good, found.bad)]
    processes = min((tried.processes for tried in ends), default=1)
    estimate = Estimate(rate, found.good, found.bad, CONFIDENCE, processes, "processes")
    estimates = {"peak_rate": estimate}
    decisions = judge(plan.limits, estimates)
    ended: Ending = "decided" if decisions else "no limits"
    if found.reason:
        ended = "budget"
    return Measurement(estimates, decisions, (), ended, _doubts_of_peak(found))


def _doubts_of_peak(found: Peak) -> str:
    doubts = [found.reason] if found.reason else []
    if found.exceptions:
        rates = ", ".join(f"{rate:g} /s" for rate in found.exceptions)
        doubts.append(f"the outcomes are not monotone: bad below the peak at {rates}")
    return "; ".join(doubts)


class _PeakMeasurement:
    """Fresh processes with load at the rates that a search asks for."""

    def __init__(
        self,
        plan: LoadItemPlan,
        new_predictor: Callable[[], AbstractContextManager[Predictor]],
        batches_for: Callable[[Predictor], Batches],
        keep_run: KeepProbe,
        keep_part: KeepPart,
    ) -> None:
        self._plan = plan
        self._new_predictor = new_predictor
        self._batches_for = batches_for
        self._keep_run = keep_run
        self._keep_part = keep_part
        self._runs = 0
        self._warmed: WarmUp | None = None

    def peak_plan(self) -> PeakPlan:
        """Return the plan of the search, which begins at the rate of calls back to back."""
        keys = self._plan.load
        assert isinstance(keys, PeakKeys), "only a peak is searched"
        assert self._warmed is not None, "a process is open"
        calls = np.concatenate(self._warmed.latencies)
        limit = self._plan.longest_delay(self._warmed.median)
        is_whole = self._plan.limit_on("query_latency") is not None
        return PeakPlan(
            criterion=Criterion(limit, keys.share, keys.precision),
            start=self._plan.instances / self._warmed.median,
            fastest=float(np.nanmin(calls)) if is_whole and np.isfinite(calls).any() else 0.0,
            budget=self._plan.budget,
        )

    def opener(self, first: Drive) -> Callable[[], AbstractContextManager[Drive]]:
        """Return a function that starts processes, the first of which is open already."""
        opened = [contextlib.nullcontext(first)]
        return lambda: opened.pop() if opened else self.open()

    @contextlib.contextmanager
    def open(self) -> Iterator[Drive]:
        """Start a process and warm it up; it takes load until the context ends.

        Raises FastestCall where the limit is below the fastest call.
        """
        with self._new_predictor() as predictor:
            batches = self._batches_for(predictor)
            predictor.run("single_stream", batches, seconds=0, least=1, longest=self._plan.budget)
            self._warmed = warm_up(single_calls(self._plan), predictor)
            check_fastest(self._plan, self._warmed)

            def drive(rate: float, queries: int) -> Load:
                return self._serve(predictor, batches, rate, queries)

            yield drive

    def _serve(self, predictor: Predictor, batches: Batches, rate: float, queries: int) -> Load:
        """Put load on a process, with arrivals and samples of a seed of their own."""
        number = self._runs
        self._runs += 1
        seed = self._plan.seed + number
        arrivals = poisson_arrivals(rate, seed, 0, queries)
        plan = self._plan.scheduled(arrivals, seed, len(batches))
        try:
            run = predictor.load_run(batches, plan)
        except (LoadLost, LoadInterrupted) as error:
            times = query_times(plan, error.run)
            self._keep_part(number, scenario_run(error.run, times))
            raise
        times = query_times(plan, run)
        self._keep_run(number, scenario_run(run, times))
        verdicts = judge_queries(self._plan, times)
        late = any(each.verdict is Verdict.INVALID for each in verdicts.values())
        over, *others = (
            values > round(limit.value * _SECOND) for limit, values in limited(self._plan, times)
        )
        return Load(
            over=over,
            others=others,
            seconds=float(times.done.max()) / _SECOND,
            untrusted="the load generator was late" if late else "",
        )
