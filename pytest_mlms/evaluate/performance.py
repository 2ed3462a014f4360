"""Performance over fresh processes, which are added until the limits are decided."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import fmean
from typing import NamedTuple

import numpy as np

from pytest_mlms.agent.predictor import Predictor, ScenarioRun
from pytest_mlms.agent.process import Array
from pytest_mlms.errors import OutputError
from pytest_mlms.evaluate.agreement import rounding_tolerance
from pytest_mlms.evaluate.contention import TimesLessWait, latencies_less_wait, waited
from pytest_mlms.evaluate.limits import judge
from pytest_mlms.evaluate.outputs import check_finite, finite_rows
from pytest_mlms.quantities import QUANTITIES, ProcessEstimator, quantities_of
from pytest_mlms.records import Decision, Estimate, Limit, Verdict
from pytest_mlms.statistics import (
    is_steady,
    rate_interval,
    samples_for_percentile,
    student_interval,
)

__all__ = [
    "Measurement",
    "PerformancePlan",
    "ProcessRecord",
    "ProcessResult",
    "estimate_performance",
    "measure_performance",
]

_WINDOW_CALLS = 8  # of the warm-up
_WINDOW_SECONDS = 0.05
_WINDOWS = 20
_LEAST_CALLS = 16  # timed calls of a process
_LOOKS = 3  # the limits are judged after N, 2 N and 4 N processes
_RISK = 0.05  # of an interval that misses the truth
_TIME_UNITS = ("s", "/s")

Batches = Sequence[Mapping[str, Array]]


@dataclass(frozen=True)
class PerformancePlan:
    """The runs of a performance item.

    ``duration`` and ``budget`` are in seconds, ``processes`` is their number at the first look.
    """

    scenario: str
    batch_size: int
    processes: int
    duration: float
    budget: float
    limits: Sequence[Limit]

    @property
    def confidence(self) -> float:
        """Confidence of each look: 95 % for the item, shared between its looks (Bonferroni)."""
        looks = _LOOKS if self.limits else 1
        return 1 - _RISK / looks

    @property
    def least(self) -> int:
        """Timed calls of a process: what the limits on percentiles need."""
        least = _LEAST_CALLS
        for limit in self.limits:
            needed = _calls_needed(QUANTITIES[limit.quantity].percent)
            least = max(least, needed)
        return least

    @property
    def longest(self) -> float:
        """Seconds that one process may time: half of its share of the budget.

        Warming up may take a quarter.
        """
        return self.budget / self.processes / 2


def _calls_needed(percent: float | None) -> int:
    """Return the calls of a process that a percentile needs, or a quantity that is none."""
    if percent is None or percent <= 50:
        return 1
    return samples_for_percentile(percent)


@dataclass(frozen=True)
class ProcessRecord:
    """Record of one fresh process: seconds, bytes, and the digest of its outputs.

    ``waited`` is the share of the timed run that the calling thread waited for a core, None where
    the kernel doesn't count it. ``load_waited`` and ``first_waited`` are seconds of such a wait.
    """

    start_seconds: float
    load_seconds: float
    first_seconds: float
    loop_seconds: float
    warmup_calls: int
    steady: bool
    peak_bytes: int
    peak_is_since_load: bool
    calls: int
    output_sha256: str
    waited: float | None
    load_waited: float
    first_waited: float


@dataclass(frozen=True, eq=False)
class ProcessResult:
    """The measurements of one fresh process, as ``quantities.ProcessValues`` has them."""

    record: ProcessRecord
    run: ScenarioRun
    seconds_per_input: float

    @property
    def mean_latency(self) -> float:
        """Mean latency of the timed calls, in seconds."""
        return float(self.run.latencies.mean())

    @property
    def first_seconds(self) -> float:
        """Latency of the first call, in seconds."""
        return self.record.first_seconds

    @property
    def load_seconds(self) -> float:
        """Seconds that loading the model took."""
        return self.record.load_seconds

    @property
    def peak_bytes(self) -> int:
        """Largest resident memory, less that before the model was loaded, in bytes."""
        return self.record.peak_bytes

    @property
    def peak_is_since_load(self) -> bool:
        """True if the kernel could reset the peak before the model was loaded."""
        return self.record.peak_is_since_load

    def percentile(self, percent: float) -> float:
        """Return a percentile (0 to 100) of the timed calls' latencies, in seconds."""
        return float(np.percentile(self.run.latencies, percent))

    @cached_property
    def less_wait(self) -> TimesLessWait:
        """The same without the calling thread's wait for a core."""
        record = self.record
        latencies = latencies_less_wait(self.run.times)
        kept = latencies.sum() / self.run.latencies.sum()
        return TimesLessWait(
            latencies=latencies,
            seconds_per_input=self.seconds_per_input * float(kept),
            first_seconds=record.first_seconds - record.first_waited,
            load_seconds=record.load_seconds - record.load_waited,
            peak_bytes=record.peak_bytes,
            peak_is_since_load=record.peak_is_since_load,
        )


class Measurement(NamedTuple):
    """The estimates over fresh processes, and the decisions on the limits."""

    estimates: dict[str, Estimate]
    decisions: list[Decision]


def measure_performance(
    plan: PerformancePlan,
    new_predictor: Callable[[], AbstractContextManager[Predictor]],
    batches_for: Callable[[Predictor], Batches],
    keep: Callable[[int, ProcessResult], None],
) -> Measurement:
    """Time fresh processes until the limits are decided, and return what they say together.

    The processes are the replicates: N of them, then twice as many and twice that again while a
    limit lies inside its interval and the budget lasts. ``keep`` gets the number and the result of
    each process when it is done. Raises OutputError where outputs aren't finite, or where two
    processes compute different ones.
    """
    began = time.monotonic()
    results: list[ProcessResult] = []
    measurement = Measurement({}, [])
    for look in range(_LOOKS):
        wanted = plan.processes * 2**look
        while len(results) < wanted:
            if look > 0 and _is_spent(began, len(results), plan.budget):
                break
            with new_predictor() as predictor:
                result = _one_process(plan, predictor, batches_for(predictor))
            results.append(result)
            keep(len(results) - 1, result)
            _check_same_outputs(results)
        estimates = estimate_performance(results, plan.confidence)
        measurement = Measurement(estimates, judge(plan.limits, estimates))
        is_open = any(map(_may_be_decided_later, measurement.decisions))
        if not is_open or _is_spent(began, len(results), plan.budget):
            break
    return measurement


def _may_be_decided_later(decision: Decision) -> bool:
    """Return whether more processes may decide a limit."""
    return decision.verdict is Verdict.INCONCLUSIVE and not decision.estimate.lacking


def _is_spent(began: float, processes: int, budget: float) -> bool:
    """Return whether one more process would pass the budget, if it took as long as the others."""
    spent = time.monotonic() - began
    return spent + spent / processes > budget


def _one_process(plan: PerformancePlan, predictor: Predictor, batches: Batches) -> ProcessResult:
    began = time.perf_counter()
    first = predictor.run("single_stream", batches, seconds=0, least=1, longest=plan.longest)
    warm_up = _warm_up(plan, predictor)
    run = predictor.run(
        plan.scenario, seconds=plan.duration, least=plan.least, longest=plan.longest
    )
    loop_seconds = time.perf_counter() - began
    for name, output in run.outputs.items():
        check_finite(name, finite_rows(output))
    record = ProcessRecord(
        start_seconds=predictor.start_seconds,
        load_seconds=predictor.load_seconds,
        first_seconds=float(first.latencies[0]),
        loop_seconds=loop_seconds,
        warmup_calls=warm_up.calls,
        steady=warm_up.steady,
        peak_bytes=run.peak_bytes - predictor.rss_before,
        peak_is_since_load=predictor.peak_is_since_load,
        calls=len(run.latencies),
        output_sha256=run.sha256,
        waited=waited(run.times),
        load_waited=predictor.load_waited,
        first_waited=_seconds_waited(first),
    )
    return ProcessResult(record, run, _seconds_per_input(plan, run))


def _seconds_waited(run: ScenarioRun) -> float:
    counter = run.times["wait"]
    return float(counter[-1] - counter[0])


def _seconds_per_input(plan: PerformancePlan, run: ScenarioRun) -> float:
    """Return the seconds that one input took.

    Those of the calls alone where each request waits for the last one. Offline, where all requests
    are there at once, those from the first call's start to the last call's end.
    """
    if plan.scenario == "offline":
        whole = run.times["end"][-1] - run.times["start"][0]
        return float(whole / len(run.latencies) / plan.batch_size)
    return float(run.latencies.mean() / plan.batch_size)


class WarmUp(NamedTuple):
    """The calls of a warm-up, and whether it reached a steady state."""

    calls: int
    steady: bool


def _warm_up(plan: PerformancePlan, predictor: Predictor) -> WarmUp:
    """Run windows of calls until their median no longer falls."""
    calls = 0
    medians: list[float] = []
    end = time.monotonic() + plan.longest / 2
    while not is_steady(medians) and len(medians) < _WINDOWS and time.monotonic() < end:
        window = predictor.run(
            plan.scenario, seconds=_WINDOW_SECONDS, least=_WINDOW_CALLS, longest=plan.longest / 4
        )
        calls += len(window.latencies)
        medians.append(float(np.median(window.latencies)))
    return WarmUp(calls, is_steady(medians))


def _check_same_outputs(results: Sequence[ProcessResult]) -> None:
    """Raise OutputError where the last process computed something else than the first.

    Both have the same inputs.
    """
    expected = results[0].run.outputs
    for name, output in results[-1].run.outputs.items():
        difference = _difference(output, expected[name])
        if difference:
            raise OutputError(
                f"process {len(results)} computed another {name!r} than process 1 from the same "
                f"inputs, {difference}; what is timed must be right: look for uninitialised memory "
                f"or a race"
            )


def _difference(output: Array, expected: Array) -> str:
    """Return how the outputs differ by more than rounding; "" where they don't."""
    if output.shape != expected.shape:
        return f"{output.shape} for {expected.shape}"
    differences = np.abs(output.astype(np.float64) - expected)
    largest = differences.max(initial=0.0)
    if largest <= rounding_tolerance(expected).atol:
        return ""
    return f"up to {largest:g} off"


def estimate_performance(
    results: Sequence[ProcessResult], confidence: float
) -> dict[str, Estimate]:
    """Return the quantities of performance over processes.

    An estimate is the mean of the processes' values with Student's interval. Throughput is what a
    fixed amount of work gets, as in MLPerf's offline scenario: the processes' time for an input is
    what is averaged (so rates by the harmonic mean: Smith 1988, Communications of the ACM 31:1202),
    and it agrees with the mean latency.
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
    value = fmean(values)
    interval = student_interval(values, confidence)
    if estimator.is_rate:
        value = 1 / value
        interval = rate_interval(values, confidence)
    return Estimate(
        value=value,
        low=interval.low,
        high=interval.high,
        confidence=confidence,
        replicates=len(results),
        of="processes",
        lacking=_missing(estimator, results),
    )


def _value_less_wait(estimator: ProcessEstimator, results: Sequence[ProcessResult]) -> float | None:
    """Return the estimate without the wait for a core; None where the kernel doesn't count it."""
    if any(result.record.waited is None for result in results):
        return None
    value = fmean(estimator.value(result.less_wait) for result in results)
    return 1 / value if estimator.is_rate else value


def _missing(estimator: ProcessEstimator, results: Sequence[ProcessResult]) -> str:
    """Return the reason why the processes can't tell a quantity; "" where they can."""
    for result in results:
        reason = estimator.missing(result)
        if reason:
            return reason
    needed = _calls_needed(estimator.percent)
    fewest = min(result.record.calls for result in results)
    if fewest < needed:
        return f"needs {needed} calls a process, had {fewest}: raise --mlms-budget"
    return ""
