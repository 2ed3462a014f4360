"""Tests of performance under load on queues that are computed, not run."""

from __future__ import annotations

import contextlib
import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from pytest_mlms.core.errors import AgentError, MlmsError, OutputError
from pytest_mlms.core.records import Limit, Place, Verdict
from pytest_mlms.measure.agent.load import LoadLost, LoadPlan, LoadRun
from pytest_mlms.measure.agent.predictor import Predictor, ScenarioRun, ServedCall, ServedCalls
from pytest_mlms.measure.evaluate.limits import explain
from pytest_mlms.measure.evaluate.load_performance import measure_load, measure_peak
from pytest_mlms.measure.evaluate.load_plan import LoadItemPlan
from pytest_mlms.measure.evaluate.performance import Measurement
from pytest_mlms.measure.evaluate.process_result import ProcessResult
from tests.measure.evaluate.test_load_plan import load_of, plan_of, server

SECOND = 1_000_000_000
BATCHES = [{"x": np.full((1, 2), value, np.float32)} for value in range(3)]


@dataclass
class FakeServer:
    """A model whose calls take ``seconds``; each process has the next of them.

    It serves ``share`` of the queries. Answers have so many ``tokens``, at equal distances from the
    ``first`` one, in seconds from the start.
    """

    seconds: float
    late: float = 0.0
    wrong: bool = False
    dies_at: int | None = None
    share: float = 1.0
    tokens: int = 0
    first: float | None = None
    instances: int = 1
    start_seconds: float = 0.1
    load_seconds: float = 0.1
    load_waited: float = 0.0
    rss_before: int = 0
    peak_is_since_load: bool = True
    unmeasured: dict[str, str] = field(default_factory=dict)
    loads: list[LoadPlan] = field(default_factory=list)

    def run(self, scenario: str, batches: Any = (), **limits: Any) -> ScenarioRun:
        start = np.arange(20) * 1.0
        times = {"start": start, "end": start + self.seconds}
        counters = {"wait": np.zeros(2), "cpu": np.zeros(2), "at": np.array([0.0, 20.0])}
        return ScenarioRun({**times, **counters}, {}, "digest", 100)

    def predict(self, batch: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {"y": batch["x"].mean(axis=1)}

    def load_run(self, batches: Sequence[Any], plan: LoadPlan) -> LoadRun:
        assert bool(batches) == (not self.loads), "batches are sent once"
        assert plan.scheduled is not None
        self.loads.append(plan)
        run = self._served(plan, plan.scheduled)
        if self.dies_at is not None:
            raise LoadLost(AgentError("the agent ended"), run)
        return run

    def served_calls(self) -> ServedCalls:
        sample = int(self.loads[-1].samples[0])
        return ServedCalls(
            [ServedCall([sample], {"y": np.array([sample + self.wrong], np.float32)})]
        )

    def _served(self, plan: LoadPlan, scheduled: np.ndarray) -> LoadRun:
        free = [0] * self.instances
        done = []
        served = scheduled[: round(self.share * len(scheduled))]
        for time in served[: self.dies_at].tolist():
            done.append(max(heapq.heappop(free), time) + round(self.seconds * SECOND))
            heapq.heappush(free, done[-1])
        count = len(done)
        start = np.array(done, np.int64) - round((self.seconds - self.late) * SECOND)
        first = self.seconds / max(self.tokens, 1) if self.first is None else self.first
        steps = np.linspace(first, self.seconds, self.tokens) * SECOND
        at = start[:, None] + np.round(steps).astype(np.int64)
        numbers = np.repeat(np.arange(count), self.tokens)
        return LoadRun(
            queries=np.arange(count),
            scheduled=scheduled[:count],
            issued=scheduled[:count] + round(self.late * SECOND),
            started=start,
            done=np.array(done, np.int64) + round(self.late * SECOND),
            batch_sizes=np.ones(count, np.int64),
            readings={name: np.array([0, 100]) for name in ("at", "cpu", "wait")},
            complete=self.share == 1,
            instances=1,
            peak_bytes=1000,
            tokens=np.column_stack([numbers, at.ravel()]),
        )


@dataclass
class Kept:
    results: list[ProcessResult] = field(default_factory=list)
    parts: list[ScenarioRun] = field(default_factory=list)


def measure(plan: LoadItemPlan, servers: Sequence[FakeServer]) -> tuple[Measurement, Kept]:
    kept = Kept()
    waiting = iter(servers)

    @contextlib.contextmanager
    def new_predictor() -> Iterator[Predictor]:
        yield cast(Predictor, next(waiting))

    measurement = measure_load(
        plan,
        new_predictor,
        lambda predictor: BATCHES,
        lambda number, result: kept.results.append(result),
        lambda number, run: kept.parts.append(run),
    )
    return measurement, kept


def test_a_server_that_keeps_up_passes_with_every_process() -> None:
    fast = [FakeServer(0.001), FakeServer(0.001)]
    measured, kept = measure(plan_of(server()), fast)
    (decision,) = measured.decisions
    assert decision.verdict is Verdict.PASSED
    assert decision.estimate.high <= 0.015
    assert len(kept.results) == 2
    assert measured.ended == "decided"
    assert measured.estimates["query_rate"].value == pytest.approx(100, rel=0.2)
    assert measured.estimates["throughput"].value == pytest.approx(100, rel=0.2)
    assert measured.estimates["issue_delay"].value == 0


def test_a_server_that_can_not_keep_up_fails_with_its_first_process() -> None:
    measured, kept = measure(plan_of(server()), [FakeServer(0.012)])
    (decision,) = measured.decisions
    assert decision.verdict is Verdict.FAILED
    assert decision.estimate.low > 0.015
    assert len(kept.results) == 1


def test_one_slow_process_fails_the_item() -> None:
    measured, kept = measure(plan_of(server()), [FakeServer(0.001), FakeServer(0.012)])
    assert measured.decisions[0].verdict is Verdict.FAILED
    assert len(kept.results) == 2


def test_an_open_verdict_goes_on_for_longer_and_says_what_it_would_take() -> None:
    scarce = FakeServer(0.006)
    plan = plan_of(server(latency="28 ms"), processes=1, budget=40.0)
    measured, kept = measure(plan, [scarce])
    runs = [len(load.samples) for load in scarce.loads]
    assert len(runs) > 1
    assert runs == sorted(runs)
    load = kept.results[0].record.load
    assert load is not None
    assert load.runs == len(runs)
    (decision,) = measured.decisions
    assert decision.verdict is Verdict.INCONCLUSIVE
    assert "undecided: LoadGen's rule takes" in explain(decision)


def test_a_run_goes_on_where_its_queries_were_lucky() -> None:
    # 90 % busy: the true p99 is some 210 ms, and LoadGen's rule passes the first run
    lucky = plan_of(server(latency="180 ms"), processes=1, budget=20.0)
    measured, _ = measure(lucky, [FakeServer(0.009)])
    assert measured.decisions[0].verdict is Verdict.PASSED
    busy = FakeServer(0.009)
    measured, _ = measure(replace(lucky, budget=400.0), [busy])
    (decision,) = measured.decisions
    assert decision.verdict is Verdict.INCONCLUSIVE
    assert "queries that wait for each other depend on each other" in explain(decision)
    assert len(busy.loads) > 1


def test_queries_that_are_issued_late_make_the_item_invalid() -> None:
    measured, _ = measure(plan_of(server()), [FakeServer(0.001, late=0.020)])
    (decision,) = measured.decisions
    assert decision.verdict is Verdict.INVALID
    text = explain(decision)
    assert "query_latency is not shown to be at most 15.0 ms" in text
    assert "invalid: queries were issued 20.0 ms late (p99), more than 5 % of the limit" in text


def test_a_limit_that_is_met_with_our_lateness_is_met() -> None:
    servers = [FakeServer(0.001, late=0.002) for _ in range(plan_of(server()).processes)]
    measured, _ = measure(plan_of(server()), servers)
    (decision,) = measured.decisions
    assert decision.verdict is Verdict.PASSED


def test_a_limit_below_the_fastest_call_fails_before_any_load() -> None:
    slow = FakeServer(0.02)
    measured, kept = measure(plan_of(server()), [slow])
    (decision,) = measured.decisions
    assert decision.verdict is Verdict.FAILED
    assert "the fastest call alone takes longer, so no load was generated" in explain(decision)
    assert not slow.loads
    assert not kept.results


def test_a_percentile_without_its_queries_is_an_error_before_any_process() -> None:
    with pytest.raises(MlmsError, match="takes 459 queries in each process, 459 s at 1 /s"):
        measure(plan_of(server(rate="1 /s")), [])


def test_other_outputs_under_load_than_alone_are_an_error() -> None:
    with pytest.raises(OutputError, match="computed another 'y' under load than alone"):
        measure(plan_of(server()), [FakeServer(0.001, wrong=True)])


def test_what_was_received_from_an_agent_that_died_is_kept() -> None:
    kept = Kept()
    dying = FakeServer(0.001, dies_at=100)
    with pytest.raises(LoadLost):
        measure_load(
            plan_of(server()),
            lambda: contextlib.nullcontext(cast(Predictor, dying)),
            lambda predictor: BATCHES,
            lambda number, result: kept.results.append(result),
            lambda number, run: kept.parts.append(run),
        )
    assert len(kept.parts[0].latencies) == 100
    assert not kept.results


def test_a_limit_on_queries_that_straddles_gets_more_processes() -> None:
    """Rates of few arrivals differ by a tenth, so that three processes decide on none nearby."""
    near = Limit("query_rate", 95.0, Place(Path("m.yaml"), 9))
    plan = plan_of(server(), limits=[near], processes=3, budget=60.0)
    measured, kept = measure(plan, [FakeServer(0.001) for _ in range(12)])
    criterion, decision = measured.decisions
    assert criterion.verdict is Verdict.PASSED
    assert len(kept.results) in (6, 12)
    assert decision.estimate.replicates == len(kept.results)


TOKENS = {"latency": None, "ttft": "15 ms", "tpot": "5 ms"}


def judged(measured: Measurement) -> dict[str, Verdict]:
    """Return the verdict on each limit, by quantity."""
    return {decision.limit.quantity: decision.verdict for decision in measured.decisions}


def test_a_server_of_tokens_passes_by_both_limits() -> None:
    servers = [FakeServer(0.001, tokens=4) for _ in range(2)]
    measured, kept = measure(plan_of(server(**TOKENS)), servers)
    assert judged(measured) == {"query_ttft": Verdict.PASSED, "query_tpot": Verdict.PASSED}
    assert measured.estimates["query_tpot"].value == pytest.approx(0.00025)
    assert measured.estimates["query_ttft"].value >= 0.00025
    rate = measured.estimates["query_rate"].value
    assert 0.98 * rate < measured.estimates["goodput"].value <= rate
    load = kept.results[0].record.load
    assert load is not None
    assert load.tokens is not None
    assert load.tokens["tpot"]["p99"].loadgen == pytest.approx(0.00025)


def test_an_overloaded_server_breaks_the_limit_on_first_tokens_however_fast_its_answers_are() -> (
    None
):
    measured, _ = measure(plan_of(server(**TOKENS)), [FakeServer(0.012, tokens=4)])
    assert judged(measured)["query_ttft"] is Verdict.FAILED
    assert measured.estimates["query_tpot"].value == pytest.approx(0.003)
    assert measured.estimates["goodput"].value < 0.2 * measured.estimates["query_rate"].value


def test_slow_tokens_break_their_limit_whatever_the_first_ones_are() -> None:
    slow = FakeServer(0.008, tokens=4)
    keys = {**TOKENS, "ttft": "60 s", "tpot": "1 ms", "percentile": 90}
    measured, _ = measure(plan_of(server(**keys), budget=12.0), [slow])
    assert judged(measured)["query_tpot"] is Verdict.FAILED


@pytest.mark.parametrize("limit", ["15 ms", "60 s"])
@pytest.mark.parametrize("key", ["latency", "ttft", "tpot"])
@pytest.mark.parametrize("share", [0.5, 0.9, 0.0])
def test_queries_that_were_never_served_are_over_each_limit_also_one_that_outlasts_the_load(
    key: str, limit: str, share: float
) -> None:
    keys = {**TOKENS, "ttft": None, "tpot": None, key: limit}
    stuck = [FakeServer(0.001, tokens=4, share=share) for _ in range(2)]
    measured, kept = measure(plan_of(server(**keys)), stuck)
    (decision,) = measured.decisions
    is_long = limit == "60 s" and share  # then queries depend on each other, and count as one
    assert decision.verdict is (Verdict.INCONCLUSIVE if is_long else Verdict.FAILED)
    load = kept.results[0].record.load
    assert load is not None
    assert load.over == load.unserved == load.queries - round(share * load.queries)
    if not share:
        assert measured.estimates["goodput"].value == 0


def test_answers_of_one_token_leave_the_time_of_further_ones_undecided() -> None:
    servers = [FakeServer(0.001, tokens=1) for _ in range(2)]
    measured, _ = measure(plan_of(server(**TOKENS)), servers)
    assert judged(measured) == {"query_ttft": Verdict.PASSED, "query_tpot": Verdict.INCONCLUSIVE}
    text = explain(measured.decisions[1])
    assert "no answer has a second token" in text


def test_a_model_that_tells_no_tokens_is_an_error_where_they_are_limited() -> None:
    with pytest.raises(AgentError, match="tells no times of tokens under load, for query_ttft"):
        measure(plan_of(server(**TOKENS)), [FakeServer(0.001)])


BUSY: dict[str, Any] = {"tokens": 2, "first": 0.001, "instances": 64}


def test_a_server_is_loaded_until_all_of_its_instances_answer() -> None:
    """64 answers of 5 s at once are 13 a second, and 50 come: none waits in the first second."""
    keys = {**TOKENS, "rate": "50 /s", "ttft": "2 ms", "tpot": None, "percentile": 90}
    plan = plan_of(server(**keys), instances=64)
    measured, _ = measure(plan, [FakeServer(5.0, **BUSY) for _ in range(2)])
    assert judged(measured) == {"query_ttft": Verdict.FAILED}


class SearchedServer(FakeServer):
    """One that gets the batches again with each load."""

    def load_run(self, batches: Sequence[Any], plan: LoadPlan) -> LoadRun:
        assert plan.scheduled is not None
        return self._served(plan, plan.scheduled)


def test_the_peak_by_first_tokens_is_what_all_instances_can_answer() -> None:
    """64 answers of 1 s at once are 64 a second."""
    plan = plan_of(load_of("peak", ttft="2 ms", percentile=90), instances=64, budget=2000.0)
    busy = cast(Predictor, SearchedServer(1.0, **BUSY))
    measured = measure_peak(
        plan,
        lambda: contextlib.nullcontext(busy),
        lambda predictor: BATCHES,
        lambda number, run: None,
        lambda number, run: None,
        lambda probes, found: None,
    )
    assert 32 < measured.estimates["peak_rate"].low <= 64
