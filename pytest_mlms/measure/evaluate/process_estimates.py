"""Estimates of performance over fresh processes: pure functions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

import numpy as np

from pytest_mlms.core.quantities import ProcessEstimator, quantities_of
from pytest_mlms.core.records import Estimate
from pytest_mlms.core.statistics import (
    Interval,
    percentile_interval,
    rate_interval,
    student_interval,
)
from pytest_mlms.measure.evaluate.performance_plan import calls_needed
from pytest_mlms.measure.evaluate.process_result import ProcessResult

_TIME_UNITS = ("s", "/s")


def estimate_performance(
    results: Sequence[ProcessResult], confidence: float
) -> dict[str, Estimate]:
    """Return the quantities of performance over processes.

    An estimate is the mean of the processes' values with Student's interval. That of a percentile
    is at least as wide as the interval of its order statistics.

    Throughput is what a fixed amount of work gets: the processes' time for an input is what is
    averaged (so rates by the harmonic mean: Smith 1988, Communications of the ACM 31:1202), and it
    agrees with the mean latency.
    """
    estimates = {}
    for quantity in quantities_of("performance"):
        if quantity.estimator:
            estimate = _estimate(quantity.estimator, results, confidence)
            if quantity.unit in _TIME_UNITS:
                less_wait = _value_less_wait(quantity.estimator, results)
                estimate = replace(estimate, less_wait=less_wait)
            estimates[quantity.name] = estimate
    return estimates


def _estimate(
    estimator: ProcessEstimator, results: Sequence[ProcessResult], confidence: float
) -> Estimate:
    values = [estimator.value(result) for result in results]
    counters = {estimator.counter(result) for result in results}
    if np.isnan(values).any():
        return _nothing(_missing(estimator, results), len(results), confidence)
    if len(counters) > 1:
        text = f"processes tell it by counters of different meaning: {', '.join(sorted(counters))}"
        return _nothing(text, len(results), confidence)
    value = fmean(values)
    interval = student_interval(values, confidence)
    if estimator.is_rate:
        value = 1 / value
        interval = rate_interval(values, confidence)
    if estimator.percent:
        of_calls = _interval_of_calls(estimator.percent, results, confidence)
        interval = Interval(min(interval.low, of_calls.low), max(interval.high, of_calls.high))
    return Estimate(
        value=value,
        low=interval.low,
        high=interval.high,
        confidence=confidence,
        replicates=len(results),
        of="processes",
        lacking=_missing(estimator, results),
        counter=counters.pop(),
    )


def _nothing(missing: str, replicates: int, confidence: float) -> Estimate:
    """Return the estimate of a quantity that has no value."""
    return Estimate(
        value=math.nan,
        low=0.0,
        high=math.inf,
        confidence=confidence,
        replicates=replicates,
        of="processes",
        lacking=missing,
    )


def _interval_of_calls(
    percent: float, results: Sequence[ProcessResult], confidence: float
) -> Interval:
    """Return the interval of a percentile that the number of calls allows.

    That of the order statistics of all calls, each relative to the median of its process, so that
    differences of processes are left to the interval over processes. With few calls the
    interpolated percentiles of all processes are low alike, which their scatter doesn't show.
    """
    relative = np.concatenate([result.relative for result in results])
    median = fmean(result.median for result in results)
    interval = percentile_interval(relative, percent, confidence)
    return Interval(median * interval.low, median * interval.high)


def _value_less_wait(estimator: ProcessEstimator, results: Sequence[ProcessResult]) -> float | None:
    """Return the estimate without the wait for a core.

    None where the kernel doesn't count it, and for a rate of which nothing but wait is left.
    """
    if any(result.record.waited is None for result in results):
        return None
    value = fmean(estimator.value(result.less_wait) for result in results)
    if not estimator.is_rate:
        return value
    return 1 / value if value else None


def _missing(estimator: ProcessEstimator, results: Sequence[ProcessResult]) -> str:
    """Return the reason why the processes can't tell a quantity; "" where they can."""
    for result in results:
        reason = estimator.missing(result)
        if reason:
            return reason
    needed = calls_needed(estimator.percent)
    fewest = min(result.record.calls for result in results)
    if fewest < needed:
        return f"needs {needed} calls a process, had {fewest}: raise --mlms-budget"
    return ""
