"""Measuring one fresh process under load: first call, warm-up, and runs until they decide."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pytest_mlms.core.errors import OutputError
from pytest_mlms.core.records import Verdict
from pytest_mlms.core.statistics import PercentilePair
from pytest_mlms.manifest.scenarios import Server
from pytest_mlms.measure.agent.channel import UNTOLD
from pytest_mlms.measure.agent.load import LoadInterrupted, LoadLost, LoadPlan, LoadRun
from pytest_mlms.measure.agent.predictor import Predictor, ScenarioRun, bytes_above_load
from pytest_mlms.measure.agent.process import Array
from pytest_mlms.measure.evaluate.closeness import (
    NearbyOutputs,
    check_finite,
    finite_rows,
    nearby_outputs,
)
from pytest_mlms.measure.evaluate.fresh_process import IDLE_SECONDS, Batches, WarmUp, warm_up
from pytest_mlms.measure.evaluate.load_plan import LoadItemPlan
from pytest_mlms.measure.evaluate.output_sweep import OwnRules, largest_difference
from pytest_mlms.measure.evaluate.performance_plan import PerformancePlan
from pytest_mlms.measure.evaluate.process_result import LoadRecord, ProcessRecord, ProcessResult
from pytest_mlms.measure.load.evidence import (
    Criterion,
    RunVerdict,
    hold_back,
    is_settled,
    judge_run,
)
from pytest_mlms.measure.load.loadgen import (
    LOADGEN_SHARES,
    Bounds,
    bounds_of,
    estimate,
    percentile_pair,
)

_NANO = 1e-9
_LATE_SHARE = 0.99
_ESTIMATED_SHARES = (0.9, 0.99)

Times = NDArray[np.int64]


class QueryTimes(NamedTuple):
    """The times of all queries of a run in nanoseconds from its start, in order.

    ``done`` of the last ``unserved`` is the end of the run, so that their latencies are at least
    what they are here. ``served`` are the numbers of the others; None: of all.
    """

    scheduled: Times
    issued: Times
    done: Times
    unserved: int
    served: Times | None = None

    @property
    def latencies(self) -> Times:
        """Nanoseconds from the scheduled time until a query was done."""
        return self.done - self.scheduled

    @property
    def issue_delays(self) -> Times:
        """Nanoseconds by which our own code delayed each query that was served; 0 of none."""
        delays = self.issued - self.scheduled
        if self.served is None:
            return delays
        return delays[self.served] if len(self.served) else np.zeros(1, np.int64)

    def __len__(self) -> int:
        return len(self.scheduled)


def query_times(plan: LoadPlan, run: LoadRun) -> QueryTimes:
    """Return the times of all queries of a plan, also of those that were not served."""
    if plan.scheduled is None or run.complete:
        return QueryTimes(run.scheduled, run.issued, run.done, 0)
    end = max(round(plan.longest / _NANO), int(run.done.max(initial=0)))
    scheduled = np.asarray(plan.scheduled, np.int64)
    issued = scheduled.copy()
    done = np.full(len(scheduled), end, np.int64)
    issued[run.queries] = run.issued
    done[run.queries] = run.done
    return QueryTimes(scheduled, issued, done, len(scheduled) - len(run.queries), run.queries)


def scenario_run(run: LoadRun, times: QueryTimes) -> ScenarioRun:
    """Return a load as any other scenario's run, whose calls are the queries.

    They start when they are scheduled. Counters are of all instances, and so of no single call.
    """
    return ScenarioRun(
        times={
            "start": times.scheduled * _NANO,
            "issued": times.issued * _NANO,
            "end": times.done * _NANO,
            "wait": run.readings["wait"] * _NANO,
            "cpu": run.readings["cpu"] * _NANO,
            "read": run.readings["at"] * _NANO,
        },
        outputs={},
        sha256="",
        peak_bytes=run.peak_bytes or 0,
        energy=run.energy or UNTOLD,
        device_memory=run.device_memory,
    )


def load_record(
    run: LoadRun, times: QueryTimes, verdict: RunVerdict | None, seed: int, runs: int
) -> LoadRecord:
    """Return the record of the last of the ``runs`` of a process."""
    ordered = np.sort(times.latencies)
    delays = np.sort(times.issue_delays)
    batches = run.batch_sizes
    return LoadRecord(
        seed=seed,
        runs=runs,
        queries=len(times),
        unserved=times.unserved,
        over=verdict.over if verdict else None,
        missing=verdict.missing if verdict else 0,
        verdict=verdict.verdict.value if verdict else None,
        seconds=float(times.scheduled[-1] * _NANO),
        scheduled_rate=_rate(len(times), int(times.scheduled[-1])),
        rate=_rate(len(run.done), int(run.done.max(initial=0))),
        percentiles=_percentiles(ordered),
        early_stopping=_estimates(ordered),
        issue_delay=float(delays[int(len(delays) * _LATE_SHARE)] * _NANO),
        queue_delay=float((run.started - run.issued).mean() * _NANO) if len(run.done) else 0.0,
        instances=run.instances,
        instance_bytes=run.instance_bytes,
        largest_batch=int(batches.max(initial=0)),
        mean_batch=float(batches.mean()) if len(batches) else 0.0,
        waited=_waited(run),
    )


def _rate(count: int, last: int) -> float | None:
    """Return LoadGen's rate of queries, the last of which came or was done ``last`` ns after 0."""
    return (count - 1) / (last * _NANO) if count > 1 and last else None


def _percentiles(ordered: Times) -> dict[str, PercentilePair]:
    found = {}
    for share in LOADGEN_SHARES:
        loadgen, interpolated = percentile_pair(ordered, share)
        found[f"p{100 * share:g}"] = PercentilePair(loadgen * _NANO, interpolated * _NANO)
    return found


def _estimates(ordered: Times) -> dict[str, float | None]:
    found: dict[str, float | None] = {}
    for share in _ESTIMATED_SHARES:
        value = estimate(ordered, share)
        found[f"p{100 * share:g}"] = None if value is None else value * _NANO
    return found


def _waited(run: LoadRun) -> float | None:
    """Return the share of the time that an instance waited for a core, on average."""
    wait = run.readings["wait"]
    at = run.readings["at"]
    if not len(wait) or wait[-1] == 0 or at[-1] <= 0:
        return None
    return min(1.0, float(wait[-1] / at[-1] / run.instances))


_SECOND = 1_000_000_000
_PRECISION = 0.05  # the difference between rates that is to be seen

KeepPart = Callable[[int, ScenarioRun], None]
"""Keeps what was received from a process whose load did not come to its end."""


class FastestCall(Exception):
    """The fastest of some calls takes longer than the limit on queries, without any load."""

    def __init__(self, seconds: float, calls: int) -> None:
        super().__init__(f"{seconds} s")
        self.seconds = seconds
        self.calls = calls


@dataclass(frozen=True, eq=False, kw_only=True)
class LoadResult(ProcessResult):
    """The measurements of a process under load.

    ``bounds`` of its latencies are in nanoseconds. ``verdict`` is None without a limit.
    """

    load: LoadRecord
    bounds: Bounds
    verdict: RunVerdict | None


def measure_load_process(
    plan: LoadItemPlan, predictor: Predictor, batches: Batches, number: int, keep_part: KeepPart
) -> LoadResult:
    """Measure process ``number`` by longer and longer runs, until one decides or time is up.

    Raises FastestCall before any load where the limit is below the model's fastest call,
    OutputError for wrong outputs, and LoadLost or KeyboardInterrupt once ``keep_part`` has what was
    received until then.
    """
    began = time.perf_counter()
    first = predictor.run(
        "single_stream", batches, seconds=0, least=1, longest=plan.longest, idle=IDLE_SECONDS
    )
    warmed = warm_up(single_calls(plan), predictor)
    check_fastest(plan, warmed)
    served = _serve_until_decided(plan, predictor, batches, number, began, keep_part)
    _check_outputs(predictor, batches, plan.rules)
    view = scenario_run(served.run, served.times)
    load = load_record(
        served.run, served.times, served.verdict, seed=plan.seed + number, runs=served.runs
    )
    record = ProcessRecord(
        start_seconds=predictor.start_seconds,
        load_seconds=predictor.load_seconds,
        first_seconds=first.bind_seconds + float(first.latencies[0]),
        loop_seconds=time.perf_counter() - began,
        warmup_calls=sum(map(len, warmed.latencies)),
        steady=warmed.steady,
        peak_bytes=bytes_above_load(predictor, view.peak_bytes),
        import_bytes=None if predictor.unmeasured else predictor.rss_before,
        peak_is_since_load=predictor.peak_is_since_load,
        calls=len(served.times),
        output_sha256="",
        waited=None,
        threads_busy=served.run.busy,
        load_waited=predictor.load_waited,
        first_waited=0.0,
        in_full=True,
        load=load,
        joules_per_input=_joules_per_input(plan, served),
        idle_watts=first.energy.idle,
        energy_missing=view.energy.missing,
        energy_period=view.energy.period,
        device_memory=view.device_memory,
        unmeasured=predictor.unmeasured or None,
    )
    return LoadResult(
        record=record,
        run=view,
        seconds_per_input=_seconds_per_input(plan, served),
        load=load,
        bounds=bounds_of(served.times.latencies, plan.share),
        verdict=served.verdict,
    )


@dataclass(frozen=True, eq=False)
class _Served:
    """The last of the ``runs`` of a process."""

    run: LoadRun
    times: QueryTimes
    verdict: RunVerdict | None
    runs: int


def single_calls(plan: LoadItemPlan) -> PerformancePlan:
    """Return a plan for calls one by one, ahead of any load."""
    return PerformancePlan(
        scenario="single_stream",
        batch_size=plan.batch_size,
        processes=1,
        duration=plan.duration,
        budget=plan.longest,
        limits=(),
    )


def check_fastest(plan: LoadItemPlan, warmed: WarmUp) -> None:
    """Raise FastestCall where no call was within the limit of the scenario."""
    if plan.criterion is None or not warmed.latencies:
        return
    calls = np.concatenate(warmed.latencies)
    fastest = float(np.nanmin(calls)) if np.isfinite(calls).any() else 0.0
    if fastest > plan.criterion.value:
        raise FastestCall(fastest, len(calls))


def _serve_until_decided(
    plan: LoadItemPlan,
    predictor: Predictor,
    batches: Batches,
    number: int,
    began: float,
    keep_part: KeepPart,
) -> _Served:
    """Serve longer and longer runs while the verdict is open and a longer one fits the time."""
    sent = batches
    served: _Served | None = None
    for load_plan in plan.runs(number, len(batches)):
        if served and time.perf_counter() - began + load_plan.longest > plan.longest:
            break
        run = _serve(predictor, sent, load_plan, number, keep_part)
        sent = ()
        times = query_times(load_plan, run)
        runs = served.runs + 1 if served else 1
        served = _Served(run, times, _judge(plan, times), runs)
        if _is_decided(plan, served):
            return served
    assert served is not None, "a plan has a run"
    verdict = served.verdict
    if verdict is None or not isinstance(plan.load, Server):
        return served
    if verdict.verdict is Verdict.INCONCLUSIVE:
        return served
    latencies = served.times.latencies
    held = hold_back(verdict, latencies, plan.load.rate, _criterion(plan.load))
    return replace(served, verdict=held)


def _serve(
    predictor: Predictor, batches: Batches, plan: LoadPlan, number: int, keep_part: KeepPart
) -> LoadRun:
    try:
        return predictor.load_run(batches, plan)
    except LoadLost as error:
        keep_part(number, _view(error.run))
        raise
    except LoadInterrupted as error:
        keep_part(number, _view(error.run))
        raise KeyboardInterrupt from error  # pytest shows the name of the class


def _view(run: LoadRun) -> ScenarioRun:
    """Return the queries that were received of a run that did not come to its end."""
    return scenario_run(run, QueryTimes(run.scheduled, run.issued, run.done, 0))


def _judge(plan: LoadItemPlan, times: QueryTimes) -> RunVerdict | None:
    if plan.criterion is None:
        return None
    limit = round(plan.criterion.value * _SECOND)
    return judge_run(times.latencies, times.issue_delays, limit, plan.share)


def _is_decided(plan: LoadItemPlan, served: _Served) -> bool:
    """Return whether a longer run would say the same."""
    verdict = served.verdict
    if verdict is None or verdict.verdict is Verdict.INVALID:
        return True
    if verdict.verdict is Verdict.INCONCLUSIVE:
        return False
    if not isinstance(plan.load, Server):
        return True
    return is_settled(verdict, served.times.latencies, plan.load.rate, _criterion(plan.load))


def _criterion(server: Server) -> Criterion:
    return Criterion(server.latency, server.share, _PRECISION)


def _seconds_per_input(plan: LoadItemPlan, served: _Served) -> float:
    """Return the seconds from one done input to the next, on average."""
    done = served.run.done
    inputs = plan.samples_per_query * plan.batch_size
    queries = max(1, len(done) - 1)
    return float(done.max(initial=1)) / _SECOND / queries / inputs


def _joules_per_input(plan: LoadItemPlan, served: _Served) -> float | None:
    joules = served.run.energy.total if served.run.energy else None
    inputs = len(served.run.done) * plan.samples_per_query * plan.batch_size
    return joules / inputs if joules is not None and inputs else None


def _check_outputs(predictor: Predictor, batches: Batches, rules: OwnRules) -> None:
    """Raise OutputError where outputs under load differ from the outputs of the same inputs alone.

    A batcher joins inputs in any way, and instances run beside each other.
    """
    predict = functools.cache(lambda sample: predictor.predict(batches[sample]))
    for call in predictor.served_calls().told:
        for name, output in call.outputs.items():
            check_finite(name, finite_rows(output))
        alone = _joined([predict(sample) for sample in call.samples])
        given = [batches[sample] for sample in call.samples]

        def nearby(given: Batches = given) -> NearbyOutputs:
            of_samples = [nearby_outputs(predictor.predict, batch) for batch in given]

            def joined(parts: Iterable[Sequence[Mapping[str, Array]]]) -> list[Mapping[str, Array]]:
                return [_joined(each) for each in zip(*parts, strict=False)]

            return NearbyOutputs(
                joined(each.again for each in of_samples),
                joined(each.rounded for each in of_samples),
                lambda: joined(each.further() for each in of_samples),
            )

        outputs = {name: np.atleast_1d(output) for name, output in call.outputs.items()}
        name, difference = largest_difference(outputs, alone, "one by one", nearby, rules)
        if name:
            raise OutputError(
                f"the model computed another {name!r} under load than alone from the same inputs, "
                f"{difference}; what is timed must be right: look for state that calls share, and "
                f"for a first axis that is not that of the batch"
            )


def _joined(outputs: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
    """Return the outputs of several batches as one."""
    names = outputs[0].keys()
    return {name: np.concatenate([np.atleast_1d(each[name]) for each in outputs]) for name in names}
