"""The peak of a model: a search over runs of load in fresh processes."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager

import numpy as np

from pytest_mlms.core.records import Estimate, Verdict
from pytest_mlms.manifest.scenarios import Peak as PeakKeys
from pytest_mlms.measure.agent.load import LoadInterrupted, LoadLost
from pytest_mlms.measure.agent.predictor import Predictor, ScenarioRun
from pytest_mlms.measure.evaluate.fresh_process import Batches, WarmUp, warm_up
from pytest_mlms.measure.evaluate.limits import judge
from pytest_mlms.measure.evaluate.load_performance import without_load
from pytest_mlms.measure.evaluate.load_plan import LoadItemPlan
from pytest_mlms.measure.evaluate.load_process import (
    FastestCall,
    KeepPart,
    check_fastest,
    single_calls,
)
from pytest_mlms.measure.evaluate.load_record import query_times, scenario_run
from pytest_mlms.measure.evaluate.performance import Ending, Measurement
from pytest_mlms.measure.load.arrivals import poisson_arrivals
from pytest_mlms.measure.load.early_stopping import CONFIDENCE
from pytest_mlms.measure.load.evidence import Criterion
from pytest_mlms.measure.load.peak import find_peak
from pytest_mlms.measure.load.peak_records import Drive, Load, Peak, PeakPlan, Probe
from pytest_mlms.measure.load.verdict import judge_run

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
    estimates = {"peak_rate": _estimate(found)}
    decisions = judge(plan.limits, estimates)
    ended: Ending = "decided" if decisions else "no limits"
    if found.reason:
        ended = "budget"
    return Measurement(estimates, decisions, (), ended, _doubts(found))


def _estimate(found: Peak) -> Estimate:
    """Return the middle of the answer with its ends; the end that is there where one is missing."""
    value = found.rate
    if math.isinf(value):
        value = found.good
    ends = [tried for tried in found.rates if tried.rate in (found.good, found.bad)]
    processes = min((tried.processes for tried in ends), default=1)
    return Estimate(value, found.good, found.bad, CONFIDENCE, processes, "processes")


def _doubts(found: Peak) -> str:
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
        """Return the plan of the search, whose first rate is that of calls back to back."""
        keys = self._plan.load
        assert isinstance(keys, PeakKeys), "only a peak is searched"
        assert self._warmed is not None, "a process is open"
        calls = np.concatenate(self._warmed.latencies)
        criterion = Criterion(keys.latency, keys.share, keys.precision)
        return PeakPlan(
            criterion=criterion,
            start=self._plan.instances / self._warmed.median,
            fastest=float(np.nanmin(calls)) if np.isfinite(calls).any() else 0.0,
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
        assert self._plan.criterion is not None, "a peak has a limit"
        limit = round(self._plan.criterion.value * _SECOND)
        verdict = judge_run(times.latencies, times.issue_delays, limit, self._plan.share)
        late = verdict.verdict is Verdict.INVALID
        return Load(
            over=times.latencies > limit,
            seconds=float(times.done.max()) / _SECOND,
            untrusted="the load generator was late" if late else "",
        )
