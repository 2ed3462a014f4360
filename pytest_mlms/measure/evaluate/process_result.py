"""The measurements of one fresh process of a performance item, and estimates over processes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np
from mlms_predictors._run.replies import DeviceBytes

from pytest_mlms.core.quantities import ProcessEstimator, quantities_of
from pytest_mlms.core.quantities.quantity import DeviceTime
from pytest_mlms.core.records import Estimate
from pytest_mlms.core.serialization import omitted_if_default
from pytest_mlms.core.statistics import (
    Interval,
    PercentilePair,
    percentile_interval,
    persistence,
    rate_interval,
    student_interval,
)
from pytest_mlms.measure.agent.channel import UNTOLD
from pytest_mlms.measure.agent.predictor import ScenarioRun
from pytest_mlms.measure.agent.process import Array
from pytest_mlms.measure.evaluate.performance_plan import calls_needed
from pytest_mlms.measure.evaluate.steadiness import (
    SETTLED,
    Settling,
    TimesLessWait,
    latencies_less_wait,
)

if TYPE_CHECKING:
    from pytest_mlms.core.token_times import TokenTimes

NOT_ASKED = "it is measured where it is limited, and not under load"
"""Why processes don't tell how far inputs in a batch are from alone."""


@dataclass(frozen=True)
class LoadRecord:
    """Record of the last run of a process under load: seconds, and queries a second.

    Attributes:
        seed: Drew its arrivals and samples.
        runs: How many runs there were; each was longer than the one before.
        queries: The queries of the last one.
        unserved: Those that were not served when it ended.
        over: Those over a limit of the scenario; None where it has none.
        missing: Further queries within the limit that LoadGen's rule would take.
        verdict: The worst verdict of that rule on a limit; None without one.
        seconds: The scheduled time of the last query.
        scheduled_rate: Queries as scheduled, (n - 1) over that time.
        rate: Queries as done, (n - 1) over the time until the last one was done.
        percentiles: By name, as LoadGen has them and interpolated.
        early_stopping: LoadGen's estimates of p90 and p99; None where there are too few queries.
        issue_delay: The p99 of our own delay.
        queue_delay: The mean wait for an instance.
        instances: Copies of the model.
        instance_bytes: The memory that each copy after the first took.
        largest_batch: The most inputs of a call.
        mean_batch: Inputs of a call, as queries met them on average.
        waited: The share of the time that an instance's thread waited for a core; None where it is
            not counted.
        goodput: Queries a second that met all limits; None where there are none, or no rate.
        tokens: Percentiles of the times of tokens ("ttft", "tpot"); None where none are generated.
    """

    seed: int
    runs: int
    queries: int
    unserved: int
    over: int | None
    missing: int
    verdict: str | None
    seconds: float
    scheduled_rate: float | None
    rate: float | None
    percentiles: Mapping[str, PercentilePair]
    early_stopping: Mapping[str, float | None]
    issue_delay: float
    queue_delay: float
    instances: int
    instance_bytes: tuple[int, ...]
    largest_batch: int
    mean_batch: float
    waited: float | None
    goodput: float | None = omitted_if_default(None)
    tokens: Mapping[str, Mapping[str, PercentilePair]] | None = omitted_if_default(None)


@dataclass(frozen=True)
class ProcessRecord:
    """Record of one fresh process: seconds, bytes, and the digest of its outputs.

    ``waited`` is the share of the timed run that the calling thread waited for a core, None where
    the kernel doesn't count it. ``load_waited`` and ``first_waited`` are seconds of such a wait.
    ``steady`` is whether the warm-up ended and the timed calls are on one plateau. ``change`` is
    the last plateau of these over the one that is furthest from it, 1 where there is one.
    ``joules_per_input`` is None where ``energy_missing`` says why, and ``idle_watts`` is the power
    of the device before the first call, None where it was not measured. ``energy_period`` are the
    seconds in which a GPU's counter of energy advances.
    ``in_full`` is False where it was timed for a part of the duration, since that may be enough.
    ``load`` is there for a process under load, which has no digest. ``memory_growth`` are the bytes
    that a call added, None under load; ``import_seconds`` is the part of ``start_seconds`` in which
    the framework was imported. ``threads_busy`` are the threads that gained CPU time in the timed
    calls, None where that isn't known. ``batch_agreement`` is how far the outputs of inputs in a
    batch are from those alone, None where ``batch_missing`` says why. ``device_memory`` is the peak
    on a GPU, and ``device_time`` the median time of a call on it by its own events, None on the
    CPU. ``unmeasured`` has the reason of each quantity that can't be measured of the model.
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
    in_full: bool
    change: float = 1.0
    joules_per_input: float | None = None
    idle_watts: float | None = None
    energy_missing: str = UNTOLD.missing
    memory_growth: float | None = None
    import_seconds: float | None = None
    import_bytes: int | None = None
    threads_busy: int | None = None
    batch_agreement: float | None = omitted_if_default(None)
    batch_missing: str = omitted_if_default(NOT_ASKED)
    energy_period: float | None = omitted_if_default(None)
    load: LoadRecord | None = omitted_if_default(None)
    device_memory: DeviceBytes | None = omitted_if_default(None)
    device_time: DeviceTime | None = omitted_if_default(None)
    unmeasured: Mapping[str, str] | None = omitted_if_default(None)


@dataclass(frozen=True, eq=False)
class ProcessResult:
    """The measurements of one fresh process, as ``quantities.ProcessValues`` has them.

    ``batches`` are those that were timed.
    """

    record: ProcessRecord
    run: ScenarioRun
    seconds_per_input: float
    settling: Settling = SETTLED
    batches: Sequence[Mapping[str, Array]] = ()

    @property
    def mean_latency(self) -> float:
        """Mean latency of the timed calls, in seconds."""
        return float(self.run.latencies.mean())

    @property
    def first_seconds(self) -> float:
        """Latency of the first call, in seconds."""
        return self.record.first_seconds

    @property
    def time_to_answer(self) -> float:
        """Seconds from the start of the process to its first answer."""
        return self.record.start_seconds + self.load_seconds + self.first_seconds

    @property
    def memory_growth(self) -> float:
        """Bytes that a call added; NaN where that isn't measured."""
        growth = self.record.memory_growth
        return math.nan if growth is None else growth

    @property
    def load_seconds(self) -> float:
        """Seconds that loading the model took."""
        return self.record.load_seconds

    @property
    def peak_bytes(self) -> int:
        """Largest resident memory, less that before the model was loaded, in bytes."""
        return self.record.peak_bytes

    @property
    def device_memory(self) -> DeviceBytes | None:
        """Peak of memory on a GPU; None on the CPU."""
        return self.record.device_memory

    @property
    def device_time(self) -> DeviceTime | None:
        """Time of a call on a GPU; None where that isn't told."""
        return self.record.device_time

    @property
    def import_bytes(self) -> float:
        """Resident memory before the model was loaded, in bytes; NaN where that isn't known."""
        imports = self.record.import_bytes
        return math.nan if imports is None else imports

    @property
    def peak_is_since_load(self) -> bool:
        """True if the kernel could reset the peak before the model was loaded."""
        return self.record.peak_is_since_load

    @property
    def joules_per_input(self) -> float:
        """Energy of the device for one input, in joules; NaN where ``energy_missing`` says why."""
        joules = self.record.joules_per_input
        return math.nan if joules is None else joules

    @property
    def batch_agreement(self) -> float:
        """How far inputs in a batch are from alone, in multiples of rounding; NaN if unknown."""
        found = self.record.batch_agreement
        return math.nan if found is None else found

    @property
    def batch_missing(self) -> str:
        """The reason why that isn't known, or ""."""
        return self.record.batch_missing

    @property
    def energy_missing(self) -> str:
        """The reason why there is no energy, or ""."""
        return self.record.energy_missing

    @cached_property
    def tokens(self) -> TokenTimes | None:
        """Times of the tokens of the timed calls; None where nothing is generated."""
        return self._token_times(less_wait=False)

    def _token_times(self, less_wait: bool) -> TokenTimes | None:
        if "tokens" not in self.run.times:
            return None
        from pytest_mlms.core.token_times import TokenTimes

        return TokenTimes.of(self.run.times, less_wait)

    @property
    def seconds_per_token(self) -> float:
        """Seconds that the process took for one token; NaN where nothing is generated."""
        if self.tokens is None:
            return math.nan
        return self.seconds_per_input * self.tokens.answers / self.tokens.count

    def percentile(self, percent: float) -> float:
        """Return a percentile (0 to 100) of the timed calls' latencies, in seconds."""
        if percent not in self._percentiles:
            self._percentiles[percent] = float(np.percentile(self.run.latencies, percent))
        return self._percentiles[percent]

    @cached_property
    def _percentiles(self) -> dict[float, float]:
        """The percentiles that were asked for: each look at the limits asks for them again."""
        return {}

    @cached_property
    def relative(self) -> Array:
        """Latencies as multiples of their median."""
        return np.asarray(self.run.latencies / self.median)

    @cached_property
    def median(self) -> float:
        """Median latency of the timed calls, in seconds."""
        return self.percentile(50)

    @cached_property
    def error(self) -> float:
        """Standard error of the median as a share of it.

        It is a normal distribution's with the same quartiles, 1.2533 times the deviation over the
        root of the count, times the persistence of neighbours.
        """
        quarter, three_quarters = np.percentile(self.relative, [25, 75])
        deviation = (three_quarters - quarter) / 1.349
        error = 1.2533 * deviation / math.sqrt(len(self.relative))
        return float(error * persistence(self.relative))

    @cached_property
    def less_wait(self) -> TimesLessWait:
        """The same without the calling thread's wait for a core."""
        record = self.record
        latencies = latencies_less_wait(self.run.times)
        kept = latencies.sum() / self.run.latencies.sum()
        waited = record.load_waited + record.first_waited
        return TimesLessWait(
            latencies=latencies,
            seconds_per_input=self.seconds_per_input * float(kept),
            first_seconds=record.first_seconds - record.first_waited,
            load_seconds=record.load_seconds - record.load_waited,
            time_to_answer=self.time_to_answer - waited,
            memory_growth=self.memory_growth,
            peak_bytes=record.peak_bytes,
            import_bytes=self.import_bytes,
            peak_is_since_load=record.peak_is_since_load,
            joules_per_input=self.joules_per_input,
            energy_missing=record.energy_missing,
            batch_agreement=self.batch_agreement,
            batch_missing=record.batch_missing,
            device_memory=record.device_memory,
            device_time=record.device_time,
            tokens=self._token_times(less_wait=True),
            seconds_per_token=self.seconds_per_token * float(kept),
        )


_TIME_UNITS = ("s", "/s")


def estimate_performance(
    results: Sequence[ProcessResult], confidence: float
) -> dict[str, Estimate]:
    """Return the quantities of performance over processes.

    An estimate is the mean of the processes' values with Student's interval. A percentile's
    interval is at least as wide as the interval of its order statistics.

    Throughput is what a fixed amount of work gets: the processes' time for an input is what is
    averaged (so rates by the harmonic mean: Smith 1988, Communications of the ACM 31:1202), and it
    agrees with the mean latency.
    """
    estimates = {}
    for quantity in quantities_of("performance"):
        if quantity.estimator:
            reasons = [(result.record.unmeasured or {}).get(quantity.name) for result in results]
            if reason := next(filter(None, reasons), None):
                estimates[quantity.name] = unmeasured(reason, len(results), confidence)
                continue
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
        return unmeasured(_missing(estimator, results), len(results), confidence)
    if len(counters) > 1:
        text = f"processes tell it by counters of different meaning: {', '.join(sorted(counters))}"
        return unmeasured(text, len(results), confidence)
    value = fmean(values)
    interval = student_interval(values, confidence)
    if estimator.is_rate:
        value = 1 / value
        interval = rate_interval(values, confidence)
    if estimator.percent:
        of_calls = interval_of_calls(estimator.percent, results, confidence)
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


def unmeasured(missing: str, replicates: int, confidence: float) -> Estimate:
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


def interval_of_calls(
    percent: float, results: Sequence[ProcessResult], confidence: float
) -> Interval:
    """Return the interval of a percentile that the number of calls allows.

    It is by the order statistics of all calls, each relative to the median of its process, so that
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
