"""Performance under load over fresh processes, each of which LoadGen's rule judges."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from statistics import fmean

from pytest_mlms.core.records import Decision, Estimate, Limit, Verdict
from pytest_mlms.core.statistics import rate_interval, student_interval
from pytest_mlms.core.units import format_quantity
from pytest_mlms.measure.agent.predictor import Predictor
from pytest_mlms.measure.evaluate.doubts import withhold
from pytest_mlms.measure.evaluate.fresh_process import Batches
from pytest_mlms.measure.evaluate.limits import QUIETER, judge, worst
from pytest_mlms.measure.evaluate.load_plan import LoadItemPlan
from pytest_mlms.measure.evaluate.load_process import (
    FastestCall,
    KeepPart,
    LoadResult,
    measure_load_process,
)
from pytest_mlms.measure.evaluate.performance import Ending, Measurement, has_value
from pytest_mlms.measure.evaluate.process_estimates import estimate_performance
from pytest_mlms.measure.evaluate.process_result import ProcessResult
from pytest_mlms.measure.load.bounds import worst_of
from pytest_mlms.measure.load.early_stopping import CONFIDENCE
from pytest_mlms.measure.load.verdict import LATE_SHARE, RunVerdict

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
        return _measure_until_decided(plan, load_process, keep)
    except FastestCall as fastest:
        return without_load(plan, fastest)


def _measure_until_decided(
    plan: LoadItemPlan,
    load_process: Callable[[int], LoadResult],
    keep: Callable[[int, ProcessResult], None],
) -> Measurement:
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
            if result.verdict is not None and result.verdict.verdict in _DECISIVE:
                return _measurement(plan, results, confidence)
        measurement = _measurement(plan, results, confidence)
        if not any(_is_open(decision, plan) for decision in measurement.decisions):
            break
    return measurement


def _is_open(decision: Decision, plan: LoadItemPlan) -> bool:
    """Return whether more processes may decide a limit; of the scenario's own, each one must."""
    is_undecided = decision.verdict is Verdict.INCONCLUSIVE and not decision.estimate.lacking
    return is_undecided and decision.limit in plan.limits


def without_load(plan: LoadItemPlan, fastest: FastestCall) -> Measurement:
    """Return the measurement of a model whose fastest call breaks the limit already."""
    assert plan.criterion is not None, "only a limit can be too low"
    estimate = Estimate(
        value=fastest.seconds,
        low=fastest.seconds,
        high=float("inf"),
        confidence=CONFIDENCE,
        replicates=fastest.calls,
        of="calls without load",
    )
    reason = "the fastest call alone takes longer, so no load was generated; raise the latency"
    decision = Decision(plan.criterion, estimate, Verdict.FAILED, reason)
    return Measurement({"query_latency": estimate}, [decision], (), "decided", "")


def _measurement(
    plan: LoadItemPlan, results: Sequence[LoadResult], confidence: float
) -> Measurement:
    estimates = {
        **_load_estimates(results, confidence),
        **estimate_performance(results, confidence),
    }
    decisions = withhold(judge(plan.limits, estimates), results)
    if plan.criterion is not None:
        decisions.insert(0, _decide_criterion(plan.criterion, results, estimates))
    measured = {name: found for name, found in estimates.items() if has_value(found)}
    return Measurement(measured, decisions, (), _ending(decisions), _doubts(results))


def _load_estimates(results: Sequence[LoadResult], confidence: float) -> dict[str, Estimate]:
    """Return the quantities that only a load has."""
    estimates = {"query_latency": _query_latency(results)}
    rates = [result.load.rate for result in results]
    seconds = [1 / rate for rate in rates if rate]
    if len(seconds) == len(rates):
        interval = rate_interval(seconds, confidence)
        estimates["query_rate"] = _estimate(1 / fmean(seconds), interval, confidence, len(results))
    values = {
        "queue_delay": [result.load.queue_delay for result in results],
        "issue_delay": [result.load.issue_delay for result in results],
    }
    for name, delays in values.items():
        interval = student_interval(delays, confidence)
        estimates[name] = _estimate(fmean(delays), interval, confidence, len(results))
    return estimates


def _estimate(
    value: float, interval: tuple[float, float], confidence: float, processes: int
) -> Estimate:
    return Estimate(value, *interval, confidence, processes, "processes")


def _query_latency(results: Sequence[LoadResult]) -> Estimate:
    """Return the percentile of the process with the longest latencies, by LoadGen's rule."""
    worst = worst_of([result.bounds for result in results])
    return Estimate(
        value=worst.value * _NANO,
        low=worst.low * _NANO,
        high=worst.high * _NANO,
        confidence=CONFIDENCE,
        replicates=worst.queries,
        of="queries of each process",
    )


def _decide_criterion(
    limit: Limit,
    results: Sequence[LoadResult],
    estimates: dict[str, Estimate],
) -> Decision:
    """Return the decision on the scenario's own limit: that of its processes' verdicts."""
    estimate = estimates["query_latency"]
    verdicts = [result.verdict for result in results if result.verdict]
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
    """Return what a person should know of the processes, "" where there is nothing."""
    unserved = sum(result.load.unserved for result in results)
    if unserved:
        queries = sum(result.load.queries for result in results)
        return f"{unserved:,} of {queries:,} queries were not served when the load ended"
    if not all(result.record.steady for result in results):
        return "warm-up did not reach a steady state"
    return ""
