"""The record of a process under load, from the records of its queries: pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pytest_mlms.measure.agent.load import LoadPlan, LoadRun
from pytest_mlms.measure.agent.predictor import ScenarioRun
from pytest_mlms.measure.agent.replies import UNTOLD
from pytest_mlms.measure.load.early_stopping import estimate
from pytest_mlms.measure.load.percentiles import LOADGEN_SHARES, PercentilePair, percentile_pair
from pytest_mlms.measure.load.verdict import RunVerdict

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


@dataclass(frozen=True)
class LoadRecord:
    """Record of the last run of a process under load: seconds, and queries a second.

    Attributes:
        seed: Drew its arrivals and samples.
        runs: How many runs there were; each was longer than the one before.
        queries: The queries of the last one.
        unserved: Those that were not served when it ended.
        over: Those over the scenario's limit; None where it has none.
        missing: Further queries within the limit that LoadGen's rule would take.
        verdict: The verdict of that rule; None without a limit.
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
