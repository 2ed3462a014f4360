"""Measuring one fresh process under load: first call, warm-up, and runs until they decide."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pytest_mlms.core.errors import AgentError, OutputError
from pytest_mlms.core.records import Limit, Verdict
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
from pytest_mlms.measure.evaluate.limits import worst
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
    what they are here. ``served`` are the numbers of the others; None: of all. ``first`` is when
    the first token came, and ``each`` the time for each further one, as ``Answers`` has them; None
    where nothing is generated. Queries that were not served count with the end, and the time until
    then.
    """

    scheduled: Times
    issued: Times
    done: Times
    unserved: int
    served: Times | None = None
    first: Times | None = None
    each: Times | None = None

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

    def of(self, quantity: str) -> Times:
        """Return the nanoseconds of each query that a limit on a quantity judges, -1 for none.

        Raises AgentError where the agent tells no tokens.
        """
        if quantity == "query_latency" or self.unserved == len(self):
            return self.latencies
        if self.first is None or self.each is None:
            raise AgentError(f"the agent tells no times of tokens under load, for {quantity}")
        return self.first - self.scheduled if quantity == "query_ttft" else self.each

    def judged(self, quantity: str) -> Times:
        """Return the nanoseconds of the queries that have any: answers of one token no ``each``."""
        found = self.of(quantity)
        return found[found >= 0]

    def over(self, limits: Sequence[Limit]) -> NDArray[np.bool_]:
        """Return whether each query is over one limit or more."""
        found = np.zeros(len(self), bool)
        for limit in limits:
            found |= self.of(limit.quantity) > round(limit.value * _SECOND)
        return found

    def __len__(self) -> int:
        return len(self.scheduled)


def query_times(plan: LoadPlan, run: LoadRun) -> QueryTimes:
    """Return the times of all queries of a plan, also of those that were not served."""
    answers = run.answers
    if plan.scheduled is None or run.complete:
        tokens = (answers.first, answers.each) if answers else (None, None)
        return QueryTimes(run.scheduled, run.issued, run.done, 0, None, *tokens)
    end = max(round(plan.longest / _NANO), int(run.done.max(initial=0)))
    scheduled = np.asarray(plan.scheduled, np.int64)
    issued = scheduled.copy()
    done = np.full(len(scheduled), end, np.int64)
    issued[run.queries] = run.issued
    done[run.queries] = run.done
    unserved = len(scheduled) - len(run.queries)
    if answers is None:
        return QueryTimes(scheduled, issued, done, unserved, run.queries)
    first = np.full(len(scheduled), end, np.int64)
    each = end - scheduled
    first[run.queries] = answers.first
    each[run.queries] = answers.each
    return QueryTimes(scheduled, issued, done, unserved, run.queries, first, each)


def scenario_run(run: LoadRun, times: QueryTimes) -> ScenarioRun:
    """Return a load as any other scenario's run, whose calls are the queries.

    They start when they are scheduled. Counters are of all instances, and so of no single call.
    Queries that were not served have no tokens.
    """
    tokens = {}
    answers = run.answers
    if answers is not None:
        counts = np.zeros(len(times))
        counts[slice(None) if times.served is None else times.served] = answers.counts
        at = run.tokens[:, 1] * _NANO
        tokens = {"tokens": counts, "token": at, "token_wait": np.zeros(len(at))}
    return ScenarioRun(
        times={
            "start": times.scheduled * _NANO,
            "issued": times.issued * _NANO,
            "end": times.done * _NANO,
            "wait": run.readings["wait"] * _NANO,
            "cpu": run.readings["cpu"] * _NANO,
            "read": run.readings["at"] * _NANO,
            **tokens,
        },
        outputs={},
        sha256="",
        peak_bytes=run.peak_bytes or 0,
        energy=run.energy or UNTOLD,
        device_memory=run.device_memory,
    )


def load_record(
    run: LoadRun,
    times: QueryTimes,
    seed: int,
    runs: int,
    limits: Sequence[Limit] = (),
    verdicts: Mapping[str, RunVerdict] = {},
) -> LoadRecord:
    """Return the record of the last of the ``runs`` of a process.

    ``verdicts`` are those on the ``limits`` of its scenario, by quantity.
    """
    ordered = np.sort(times.latencies)
    delays = np.sort(times.issue_delays)
    batches = run.batch_sizes
    over = int(times.over(limits).sum())
    rate = _rate(len(run.done), int(run.done.max(initial=0)))
    return LoadRecord(
        seed=seed,
        runs=runs,
        queries=len(times),
        unserved=times.unserved,
        over=over if limits else None,
        missing=max((verdict.missing for verdict in verdicts.values()), default=0),
        verdict=worst([each.verdict for each in verdicts.values()]).value if verdicts else None,
        seconds=float(times.scheduled[-1] * _NANO),
        scheduled_rate=_rate(len(times), int(times.scheduled[-1])),
        rate=rate,
        percentiles=_percentiles(ordered),
        early_stopping=_estimates(ordered),
        issue_delay=float(delays[int(len(delays) * _LATE_SHARE)] * _NANO),
        queue_delay=float((run.started - run.issued).mean() * _NANO) if len(run.done) else 0.0,
        instances=run.instances,
        instance_bytes=run.instance_bytes,
        largest_batch=int(batches.max(initial=0)),
        mean_batch=float(batches.mean()) if len(batches) else 0.0,
        waited=_waited(run),
        goodput=_goodput(rate, len(run.done), len(times) - over) if limits else None,
        tokens=_token_percentiles(times),
    )


def _token_percentiles(times: QueryTimes) -> dict[str, dict[str, PercentilePair]] | None:
    if times.first is None:
        return None
    ordered = {name: np.sort(times.judged(f"query_{name}")) for name in ("ttft", "tpot")}
    return {name: _percentiles(values) for name, values in ordered.items() if len(values)}


def _goodput(rate: float | None, served: int, within: int) -> float | None:
    """Return the share of a rate of queries that met all limits; None where there is no rate."""
    if not within:
        return 0.0
    return None if rate is None else rate * within / served


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

    ``bounds`` are in nanoseconds, by quantity; None of one that no query has. ``verdicts`` are on
    the limits of the scenario.
    """

    load: LoadRecord
    bounds: Mapping[str, Bounds | None]
    verdicts: Mapping[str, RunVerdict]


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
    call = warmed.median
    served = _serve_until_decided(plan, predictor, batches, number, began, call, keep_part)
    _check_outputs(predictor, batches, plan.rules)
    view = scenario_run(served.run, served.times)
    load = load_record(
        served.run,
        served.times,
        seed=plan.seed + number,
        runs=served.runs,
        limits=plan.criteria,
        verdicts=served.verdicts,
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
        bounds=_bounds(plan, served.times),
        verdicts=served.verdicts,
    )


@dataclass(frozen=True, eq=False)
class _Served:
    """The last of the ``runs`` of a process."""

    run: LoadRun
    times: QueryTimes
    verdicts: Mapping[str, RunVerdict]
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
    """Raise FastestCall where no call was within the scenario's limit on whole queries."""
    limit = plan.limit_on("query_latency")
    if limit is None or not warmed.latencies:
        return
    calls = np.concatenate(warmed.latencies)
    fastest = float(np.nanmin(calls)) if np.isfinite(calls).any() else 0.0
    if fastest > limit:
        raise FastestCall(fastest, len(calls))


def _serve_until_decided(
    plan: LoadItemPlan,
    predictor: Predictor,
    batches: Batches,
    number: int,
    began: float,
    call: float,
    keep_part: KeepPart,
) -> _Served:
    """Serve longer and longer runs while a verdict is open and a longer one fits the time."""
    sent = batches
    served: _Served | None = None
    for load_plan in plan.runs(number, len(batches), call):
        if served and time.perf_counter() - began + load_plan.longest > plan.longest:
            break
        run = _serve(predictor, sent, load_plan, number, keep_part)
        sent = ()
        times = query_times(load_plan, run)
        runs = served.runs + 1 if served else 1
        served = _Served(run, times, judge_queries(plan, times), runs)
        if _is_decided(plan, served):
            return served
    assert served is not None, "a plan has a run"
    held = {limit.quantity: _hold_back(plan, served, limit) for limit in plan.criteria}
    return replace(served, verdicts=held)


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


def judge_queries(plan: LoadItemPlan, times: QueryTimes) -> dict[str, RunVerdict]:
    """Return the verdict on each limit of the scenario, by quantity.

    A load generator that is late delays the first tokens, but not those that follow.
    """
    found = {}
    for limit in plan.criteria:
        is_from_schedule = limit.quantity != "query_tpot"
        delays = times.issue_delays if is_from_schedule else np.zeros(1, np.int64)
        values = times.judged(limit.quantity)
        found[limit.quantity] = judge_run(values, delays, round(limit.value * _SECOND), plan.share)
    return found


def limited(plan: LoadItemPlan, times: QueryTimes) -> list[tuple[Limit, Times]]:
    """Return each limit of the scenario with the nanoseconds that it judges.

    An answer of one token isn't among those of ``tpot``. Raises OutputError where all are.
    """
    found = [(limit, times.judged(limit.quantity)) for limit in plan.criteria]
    for limit, values in found:
        if not len(values):
            text = "no answer has a second token, so that nothing has a tpot"
            raise OutputError(f"{limit.place}: {text}; leave it out, or let answers be longer")
    return found


def _is_decided(plan: LoadItemPlan, served: _Served) -> bool:
    """Return whether a longer run would say the same."""
    settled = {limit.quantity: _is_settled(plan, served, limit) for limit in plan.criteria}
    verdicts = [verdict.verdict for name, verdict in served.verdicts.items() if settled[name]]
    broken = (Verdict.FAILED, Verdict.INVALID)
    return all(settled.values()) or any(verdict in broken for verdict in verdicts)


def _is_settled(plan: LoadItemPlan, served: _Served, limit: Limit) -> bool:
    verdict = served.verdicts[limit.quantity]
    if verdict.verdict is Verdict.INCONCLUSIVE:
        return False
    if verdict.verdict is Verdict.INVALID or not isinstance(plan.load, Server):
        return True
    return is_settled(verdict, *_scaled(plan.load, served, limit))


def _hold_back(plan: LoadItemPlan, served: _Served, limit: Limit) -> RunVerdict:
    verdict = served.verdicts[limit.quantity]
    if verdict.verdict is Verdict.INCONCLUSIVE or _is_settled(plan, served, limit):
        return verdict
    assert isinstance(plan.load, Server), "the verdicts on others are settled"
    return hold_back(verdict, *_scaled(plan.load, served, limit))


def _scaled(server: Server, served: _Served, limit: Limit) -> tuple[Times, float, Criterion]:
    """Return what is judged of queries, their rate, and the limit on it.

    What delays a token delays others for as long as answers take. So the times of tokens are those
    of an answer at that pace, where that is longer than the limit.
    """
    values = served.times.judged(limit.quantity)
    scale = 1
    if limit.quantity == "query_tpot" and len(served.run.done):
        answer = float((served.run.done - served.run.started).mean()) / _SECOND
        scale = max(1, round(answer / limit.value))
    return values * scale, server.rate, Criterion(limit.value * scale, server.share, _PRECISION)


def _bounds(plan: LoadItemPlan, times: QueryTimes) -> dict[str, Bounds | None]:
    names = {"query_latency": None, **dict.fromkeys(limit.quantity for limit in plan.criteria)}
    if times.first is not None:
        names |= dict.fromkeys(("query_ttft", "query_tpot"))
    found = {name: times.judged(name) for name in names}
    return {
        name: bounds_of(values, plan.share) if len(values) else None
        for name, values in found.items()
    }


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
