"""Performance as MLPerf's own LoadGen measures it: one run, whose logs are kept."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.records import Decision, Estimate, Limit, Place, Verdict
from pytest_mlms.manifest.scenarios import MultiStream, ScenarioEntry, Server
from pytest_mlms.measure.agent.load import Batcher, LoadGenPlan, LoadPlan
from pytest_mlms.measure.agent.predictor import Predictor
from pytest_mlms.measure.evaluate.fresh_process import Batches
from pytest_mlms.measure.evaluate.limits import judge
from pytest_mlms.measure.evaluate.performance import Measurement
from pytest_mlms.measure.load.loadgen import (
    CONFIDENCE,
    LoadGenSettings,
    LoadGenSummary,
    read_summary,
    server_settings,
    settings_of,
    token_settings,
)

_SPARE = 2.0  # times the queries that LoadGen makes, beyond what the model takes one by one
_TRIAL = 0.1  # seconds of calls before, which also warm up
_TRIAL_CALLS = 8
_SUMMARY = "mlperf_log_summary.txt"
_STREAM_PERCENTILES = {"single_stream": 0.9, "multi_stream": 0.99}
_RATES = {
    "query_rate": (
        "Completed samples per second",
        "Samples per second",
        "QPS w/ loadgen overhead",
    ),
    "output_rate": ("Completed tokens per second", "Tokens per second", "TPS w/ loadgen overhead"),
}
"""Lines of the summary, of which a scenario has one, by the quantity that they are."""
_FIRST_TOKEN = "first token latency (ns)"
_EACH_TOKEN = "time to output token (ns)"
_OF_TOKENS = {
    "ttft": f"50.00 percentile {_FIRST_TOKEN}",
    "tpot": f"50.00 percentile {_EACH_TOKEN}",
}
_CALL_LATENCIES = {
    "latency_p50": "50.00 percentile latency (ns)",
    "latency_p90": "90.00 percentile latency (ns)",
    "latency_p95": "95.00 percentile latency (ns)",
    "latency_p99": "99.00 percentile latency (ns)",
}
"""Lines of the summary by the quantity that they are where a query is a call."""
_NOT_MEASURED = "LoadGen doesn't measure it; measure it without --mlms-loadgen"


@dataclass(frozen=True)
class LoadGenItemPlan:
    """A run of LoadGen.

    Attributes:
        scenario: The scenario of the manifest.
        place: Its line.
        seed: LoadGen's seeds.
        duration: Seconds of the run, at least.
        budget: Seconds that it may take.
        valid: Whether it must be as long as a valid result takes.
        limits: The thresholds of the case.
        instances: Copies of the model.
        batcher: The dynamic batcher, if there is one.
        generates: Whether calls are generations.
    """

    scenario: ScenarioEntry
    place: Place
    seed: int
    duration: float
    budget: float
    valid: bool
    limits: Sequence[Limit] = ()
    instances: int = 1
    batcher: Batcher | None = None
    generates: bool = False

    @property
    def judged(self) -> dict[str, float]:
        """The limits in seconds that LoadGen's result is on, by quantity: those of a server."""
        return self.scenario.load.limits if isinstance(self.scenario.load, Server) else {}

    def settings(self, call: float, throughput: float) -> LoadGenSettings:
        """Return LoadGen's settings for calls of so many seconds, and samples a second offline.

        LoadGen makes its queries in advance: too few would end before the duration. Raises
        MlmsError for a scenario or limits that it doesn't have.
        """
        own: dict[str, Any] = {
            "single_stream_expected_latency_ns": max(1, round(call / _SPARE * 1e9)),
            "multi_stream_expected_latency_ns": max(1, round(call / _SPARE * 1e9)),
            "offline_expected_qps": _SPARE * throughput,
        }
        load = self.scenario.load
        if isinstance(load, Server):
            own |= server_settings(load.rate, max(load.limits.values()), load.share)
            own |= self._token_settings(load)
        elif self.generates:
            own["use_token_latencies"] = True
        if isinstance(load, MultiStream):
            own["multi_stream_samples_per_query"] = load.samples_per_query
        return settings_of(self.scenario.name, self.seed, self.duration, self.valid, **own)

    def _token_settings(self, server: Server) -> dict[str, Any]:
        if server.ttft is None and server.tpot is None:
            return {}
        if server.latency is not None:
            raise MlmsError(
                f"{self.place}: LoadGen judges whole answers or tokens; leave out 'latency', or "
                f"'ttft' and 'tpot', or measure without --mlms-loadgen"
            )
        return token_settings(server.ttft, server.tpot)

    def run_plan(self, call: float, throughput: float) -> LoadGenPlan:
        """Return the plan of the run in an agent; see ``settings``."""
        asked = self.settings(call, throughput)
        load = self.scenario.load
        is_served = isinstance(load, Server) or self.scenario.name == "offline"
        seconds = float(asked.settings["min_duration_ms"]) / 1000
        return LoadGenPlan(
            scenario=asked.scenario,
            settings=asked.settings,
            longest=self.budget + seconds,
            samples_per_query=load.samples_per_query if isinstance(load, MultiStream) else 1,
            instances=self.instances if is_served else 1,
            batcher=self.batcher if is_served else None,
        )


def measure_by_loadgen(
    plan: LoadGenItemPlan,
    new_predictor: Callable[[], AbstractContextManager[Predictor]],
    batches_for: Callable[[Predictor], Batches],
    keep: Callable[[str, bytes], None],
) -> Measurement:
    """Let LoadGen measure a fresh process; return its figures, and its result as ``doubts``.

    ``keep`` gets its logs. A server that is INVALID is FAILED, and thresholds are judged by the
    figures of this one run; those on what LoadGen doesn't measure are INCONCLUSIVE. Raises Refused
    where the stack has no LoadGen.
    """
    plan.settings(1.0, 1.0)
    with new_predictor() as predictor:
        batches = batches_for(predictor)
        single = predictor.run(
            "single_stream", batches, seconds=_TRIAL, least=_TRIAL_CALLS, longest=plan.budget
        )
        call = float(np.median(single.latencies))
        run = plan.run_plan(call, _throughput(plan, predictor, batches, call))
        logs = predictor.run_loadgen(batches, run)
    for name, content in logs.items():
        keep(name, content)
    summary = read_summary(logs.get(_SUMMARY, b"").decode(errors="replace"))
    estimates = _estimates(plan, summary)
    decisions = _decisions(plan, summary, estimates)
    return Measurement(estimates, decisions, (), "decided", summary.text)


def _throughput(
    plan: LoadGenItemPlan, predictor: Predictor, batches: Batches, call: float
) -> float:
    """Return the samples a second that are done where all are there at once."""
    if plan.scenario.name != "offline":
        return 1.0
    most = plan.batcher.max_batch if plan.batcher else 1
    calls = max(_TRIAL_CALLS, round(_TRIAL / call))
    samples = np.arange(calls * most * plan.instances) % len(batches)
    trial = LoadPlan(
        samples,
        longest=plan.budget,
        scheduled=np.zeros(len(samples), np.int64),
        instances=plan.instances,
        batcher=plan.batcher,
    )
    run = predictor.load_run(batches, trial)
    return len(run.done) / (float(run.done.max()) * 1e-9)


def _estimates(plan: LoadGenItemPlan, summary: LoadGenSummary) -> dict[str, Estimate]:
    load = plan.scenario.load
    share = _STREAM_PERCENTILES.get(plan.scenario.name)
    if isinstance(load, Server):
        share = load.share
    names = dict(_OF_TOKENS)
    if share is not None:
        percentile = f"{100 * share:.2f} percentile"
        names["query_latency"] = f"{percentile} latency (ns)"
    if isinstance(load, Server):
        names["query_ttft"] = f"{percentile} {_FIRST_TOKEN}"
        names["query_tpot"] = f"{percentile} {_EACH_TOKEN}"
    if plan.scenario.name == "single_stream":
        names |= _CALL_LATENCIES
    estimates = {
        quantity: _estimate(summary.values[name] * 1e-9)
        for quantity, name in names.items()
        if name in summary.values
    }
    for quantity, rates in _RATES.items():
        for name in rates:
            if name in summary.values:
                estimates[quantity] = _estimate(summary.values[name])
                break
    return estimates


def _estimate(value: float) -> Estimate:
    return Estimate(value, value, value, CONFIDENCE, 1, "runs of LoadGen")


def _decisions(
    plan: LoadGenItemPlan, summary: LoadGenSummary, estimates: dict[str, Estimate]
) -> list[Decision]:
    """Return the decisions on a server's own limits, which are LoadGen's, and on the thresholds.

    LoadGen has one result for the limits on tokens. If it is INVALID, a limit is broken whose
    percentile is over it, and otherwise all of them.
    """
    lacking = {
        limit.quantity: Estimate(math.nan, 0.0, math.inf, CONFIDENCE, 0, "runs", _NOT_MEASURED)
        for limit in plan.limits
    }
    decisions = judge(plan.limits, {**lacking, **estimates})
    judged = {name: limit for name, limit in plan.judged.items() if name in estimates}
    over = [name for name, limit in judged.items() if estimates[name].value > limit]
    for number, (name, value) in enumerate(judged.items()):
        verdict = Verdict.PASSED if summary.valid else Verdict.FAILED
        if over and name not in over:
            verdict = Verdict.INCONCLUSIVE
        limit = Limit(name, value, plan.place)
        reason = "; ".join(summary.unmet)
        decisions.insert(number, Decision(limit, estimates[name], verdict, reason))
    return decisions
