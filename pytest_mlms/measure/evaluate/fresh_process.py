"""Measuring one fresh process of a performance item: first call, warm-up, timed run."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeAlias

import numpy as np

from pytest_mlms.core.quantities.quantity import DeviceTime
from pytest_mlms.core.statistics import is_steady
from pytest_mlms.measure.agent.predictor import Predictor, ScenarioRun, bytes_above_load
from pytest_mlms.measure.agent.process import Array
from pytest_mlms.measure.evaluate.doubts import is_promising, may_settle
from pytest_mlms.measure.evaluate.performance_plan import PerformancePlan
from pytest_mlms.measure.evaluate.process_result import ProcessRecord, ProcessResult
from pytest_mlms.measure.evaluate.steadiness import (
    SUSPECT_GROWTH,
    WATCH_SECONDS,
    even_out,
    growth_between,
    latencies_of_running,
    settling_of,
    waited,
    watch_growth,
)
from pytest_mlms.measure.evaluate.timed_inputs import cycle_of, groups_of

_WINDOW_CALLS = 8  # of the warm-up
_WINDOW_SECONDS = 0.05
_WINDOWS = 20
_DEVICE_CALLS = 32  # whose time on a GPU is read, or as many as take these seconds
_DEVICE_SECONDS = 0.25
IDLE_SECONDS = 0.5  # in which the power of the idle device is measured, if it has a counter

Batches: TypeAlias = Sequence[Mapping[str, Array]]


def measure_process(
    plan: PerformancePlan, predictor: Predictor, batches: Batches, early: bool
) -> ProcessResult:
    """Measure a process: ``early`` for a short time, and in full where that isn't enough.

    The short run then counts as warm-up, and so does one in full on which a limit can't be judged
    since its calls still get faster or slower.
    """
    began = time.perf_counter()
    cycle = cycle_of(batches)
    first = predictor.run(
        "single_stream",
        batches,
        seconds=0,
        least=1,
        longest=plan.longest,
        idle=IDLE_SECONDS,
        order=cycle.tolist(),
    )
    warmed = warm_up(plan, predictor, groups_of(batches)[cycle].tolist())
    run = _short_run(plan, predictor, warmed) if early else _full_run(plan, predictor)
    # Both end alike where the samples are full, or where the least number of calls takes longer.
    in_full = not (early and (plan.short <= _seconds_of(run) < plan.duration))
    result = _result(plan, predictor, _Timed(began, first, warmed, run, in_full, batches))
    if not in_full and is_promising(plan, result):
        return _with_slow_quantities(plan, predictor, result)
    runs = int(in_full)
    while runs == 0 or (may_settle(plan, result, runs) and warmed.leaves_time(plan, run)):
        warmed = warmed.and_run(run)
        run = _full_run(plan, predictor)
        runs += 1
        result = _result(plan, predictor, _Timed(began, first, warmed, run, True, batches, runs))
    return _with_slow_quantities(plan, predictor, result)


def _with_slow_quantities(
    plan: PerformancePlan, predictor: Predictor, result: ProcessResult
) -> ProcessResult:
    """Return a result with what takes further calls: growth of memory, time on a GPU, batches."""
    growth = _memory_growth(plan, predictor, result.run)
    on_device = _device_time(predictor, result)
    record = replace(result.record, memory_growth=growth, device_time=on_device)
    if plan.batch_sizes is not None:
        by_batch = plan.batch_sizes.compare(predictor)
        missing = by_batch.lacking or by_batch.refused
        limits = [one.value for one in plan.limits if one.quantity == "batch_agreement"]
        if by_batch.ratio <= min(limits, default=1.0):
            missing = missing or by_batch.unjudged()
        ratio = None if missing else by_batch.ratio
        record = replace(record, batch_agreement=ratio, batch_missing=missing)
    return replace(result, record=record)


def _device_time(predictor: Predictor, result: ProcessResult) -> DeviceTime | None:
    """Return the median of some calls by a GPU's own events; None where it tells none.

    With a head start of the launches it is the time in which the GPU works, else launches that are
    slower than their kernels are in it. Only the first batch has one, so inputs of several shapes
    are timed without.
    """
    if predictor.device == "cpu":
        return None
    clocks = predictor.bind(result.batches, cycle_of(result.batches).tolist())
    if not clocks.device:
        return None
    call = float(np.median(result.run.latencies))
    count = max(1, min(_DEVICE_CALLS, int(_DEVICE_SECONDS / call))) if call else _DEVICE_CALLS
    turn = predictor.turn(count, memory=True)
    ahead = turn.event_times[1] if turn.event_times else None
    if ahead is not None and len(set(groups_of(result.batches))) < 2:
        return DeviceTime(ahead, "events with a head start")
    return DeviceTime(float(np.median(turn.times["device"])), "events")


def _full_run(plan: PerformancePlan, predictor: Predictor) -> ScenarioRun:
    return predictor.run(
        plan.scenario, seconds=plan.duration, least=plan.least, longest=plan.longest
    )


def _short_run(plan: PerformancePlan, predictor: Predictor, warm_up: WarmUp) -> ScenarioRun:
    least = plan.least_short(warm_up.median)
    return predictor.run(plan.scenario, seconds=plan.short, least=least, longest=plan.longest)


def _seconds_of(run: ScenarioRun) -> float:
    """Return the seconds from the first call's start to the last call's end."""
    return float(run.times["end"][-1] - run.times["start"][0])


class _Timed(NamedTuple):
    """The runs of a process that began at ``began``; ``runs`` of them were in full."""

    began: float
    first: ScenarioRun
    warm_up: WarmUp
    run: ScenarioRun
    in_full: bool
    batches: Batches
    runs: int = 1

    @property
    def latencies(self) -> list[Array]:
        """The latencies of all runs without the wait for a core, as if all inputs were alike."""
        runs = [*self.warm_up.latencies, latencies_of_running(self.run.times)]
        cycle = cycle_of(self.batches)
        return even_out(even_out(runs, groups_of(self.batches)[cycle]), cycle)


def _result(plan: PerformancePlan, predictor: Predictor, timed: _Timed) -> ProcessResult:
    loop_seconds = time.perf_counter() - timed.began
    run = timed.run
    first_wait = timed.first.times["wait"]
    settling = settling_of(timed.latencies, timed.runs)
    record = ProcessRecord(
        start_seconds=predictor.start_seconds,
        load_seconds=predictor.load_seconds,
        first_seconds=timed.first.bind_seconds + float(timed.first.latencies[0]),
        loop_seconds=loop_seconds,
        warmup_calls=sum(map(len, timed.warm_up.latencies)),
        steady=timed.warm_up.steady and settling.is_settled,
        peak_bytes=bytes_above_load(predictor, run.peak_bytes),
        import_bytes=None if predictor.unmeasured else predictor.rss_before,
        peak_is_since_load=predictor.peak_is_since_load,
        calls=len(run.latencies),
        output_sha256=run.sha256,
        waited=waited(run.times),
        load_waited=predictor.load_waited,
        first_waited=float(first_wait[-1] - first_wait[0]),
        in_full=timed.in_full,
        change=settling.change,
        joules_per_input=run.energy.per_input(len(run.latencies) * plan.batch_size),
        idle_watts=timed.first.energy.idle,
        energy_missing=run.energy.missing,
        energy_period=run.energy.period,
        import_seconds=predictor.import_seconds,
        threads_busy=run.busy,
        device_memory=run.device_memory,
        unmeasured=predictor.unmeasured or None,
    )
    return ProcessResult(record, run, _seconds_per_input(plan, run), settling, timed.batches)


def _memory_growth(plan: PerformancePlan, predictor: Predictor, run: ScenarioRun) -> float:
    """Return the bytes that a call added: by the timed run, longer where it seems to leak."""
    if "memory_growth" in predictor.unmeasured:
        return math.nan
    growth = growth_between(0, run.grown, len(run.latencies))
    if growth < SUSPECT_GROWTH and not plan.watches_growth:
        return growth
    seconds = min(WATCH_SECONDS, plan.longest / 2)
    return watch_growth(predictor, float(np.median(run.latencies)), seconds)


def _seconds_per_input(plan: PerformancePlan, run: ScenarioRun) -> float:
    """Return the seconds that one input took.

    They are the calls' alone where each request waits for the last one. Offline, where all requests
    are there at once, they are from the first call's start to the last call's end.
    """
    if plan.scenario == "offline":
        return _seconds_of(run) / len(run.latencies) / plan.batch_size
    return float(run.latencies.mean() / plan.batch_size)


class WarmUp(NamedTuple):
    """A warm-up: the latencies of its calls by run, and whether its windows reached a steady state.

    The latencies are without the wait for a core, which no warm-up causes, and NaN for calls that
    did little else.
    ``median`` is the last window's. ``seconds`` went into runs of it that were timed, but
    don't count since the process had not settled.
    """

    latencies: tuple[Array, ...]
    steady: bool
    median: float
    seconds: float = 0.0

    def and_run(self, run: ScenarioRun) -> WarmUp:
        """Return the warm-up with a timed run that counts as part of it."""
        latencies = (*self.latencies, latencies_of_running(run.times))
        return self._replace(latencies=latencies, seconds=self.seconds + _seconds_of(run))

    def leaves_time(self, plan: PerformancePlan, run: ScenarioRun) -> bool:
        """Return whether there is time for another run, by the last calls of this one."""
        call = float(np.median(run.latencies[-plan.least // 4 :]))
        next_run = max(plan.duration, plan.least * call)
        return self.seconds + _seconds_of(run) + next_run <= plan.longest


def warm_up(plan: PerformancePlan, predictor: Predictor, groups: Sequence[int] = (0,)) -> WarmUp:
    """Run windows of calls until their median no longer falls.

    ``groups`` has each input's group in their order, by which windows are made alike.
    """
    windows: list[Array] = []
    latencies: list[Array] = []
    medians: list[float] = []
    end = time.monotonic() + plan.longest / 2
    while not is_steady(medians) and len(medians) < _WINDOWS and time.monotonic() < end:
        window = predictor.run(
            plan.scenario, seconds=_WINDOW_SECONDS, least=_WINDOW_CALLS, longest=plan.longest / 4
        )
        windows.append(latencies_of_running(window.times))
        latencies.append(window.latencies)
        medians = [float(np.median(evened)) for evened in even_out(latencies, groups)]
    return WarmUp(tuple(windows), is_steady(medians), medians[-1] if medians else math.inf)
