"""Tests of the record of a process under load, by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_mlms.core.errors import AgentError
from pytest_mlms.core.records import Limit, Place, Verdict
from pytest_mlms.core.token_times import TokenTimes
from pytest_mlms.measure.agent.load import LoadPlan, LoadRun
from pytest_mlms.measure.evaluate.load_process import (
    judge_queries,
    load_record,
    query_times,
    scenario_run,
)
from pytest_mlms.measure.load.loadgen import least_within
from tests.measure.evaluate.test_load_plan import plan_of, server

SECOND = 1_000_000_000


def run_of(scheduled: list[int], done: list[int], **changes: Any) -> LoadRun:
    count = len(done)
    fields: dict[str, Any] = {
        "queries": np.arange(count),
        "scheduled": np.array(scheduled[:count], np.int64),
        "issued": np.array(scheduled[:count], np.int64),
        "started": np.array(scheduled[:count], np.int64),
        "done": np.array(done, np.int64),
        "batch_sizes": np.ones(count, np.int64),
        "readings": {name: np.array([0, 100]) for name in ("at", "cpu", "wait")},
        "complete": True,
        "instances": 1,
    }
    return LoadRun(**{**fields, **changes})


def test_queries_wait_from_their_issue_until_their_call_starts() -> None:
    started = np.array([10, 60], np.int64)
    run = run_of([0, 20], [50, 100], started=started)
    plan = LoadPlan(np.zeros(2, int), longest=9.0, scheduled=run.scheduled)
    record = load_record(run, query_times(plan, run), seed=0, runs=1)
    assert record.queue_delay == pytest.approx(25e-9)


def test_queries_that_were_not_served_last_until_the_end_at_least() -> None:
    scheduled = np.array([0, 10, 20], np.int64)
    plan = LoadPlan(np.zeros(3, int), longest=1.0, scheduled=scheduled)
    run = run_of([0, 10, 20], [50], complete=False)
    times = query_times(plan, run)
    assert times.unserved == 2
    assert times.latencies.tolist() == [50, SECOND - 10, SECOND - 20]


def test_our_own_delay_is_that_of_the_queries_that_were_served() -> None:
    scheduled = np.arange(200, dtype=np.int64)
    plan = LoadPlan(np.zeros(200, int), longest=1.0, scheduled=scheduled)
    late = np.array([90, 91], np.int64)
    run = run_of([0, 1], [95, 96], complete=False, issued=late)
    times = query_times(plan, run)
    assert times.issue_delays.tolist() == [90, 90]
    record = load_record(run, times, seed=0, runs=1)
    assert record.issue_delay == pytest.approx(90e-9)
    nothing = run_of([], [], complete=False)
    assert query_times(plan, nothing).issue_delays.tolist() == [0]


def test_rates_and_percentiles_are_loadgens() -> None:
    scheduled = [number * SECOND // 100 for number in range(101)]
    done = [time + 1_000_000 * (1 + number % 10) for number, time in enumerate(scheduled)]
    run = run_of(scheduled, done)
    plan = LoadPlan(np.zeros(101, int), longest=9.0, scheduled=run.scheduled)
    record = load_record(run, query_times(plan, run), seed=3, runs=2)
    assert record.scheduled_rate == pytest.approx(100)
    assert record.rate == pytest.approx(100 / 1.001)
    assert record.percentiles["p90"].loadgen == pytest.approx(0.009)
    assert record.percentiles["p50"].interpolated == pytest.approx(0.005)
    assert record.early_stopping == {"p90": pytest.approx(0.010), "p99": None}
    assert (record.seconds, record.queries, record.unserved, record.over) == (1.0, 101, 0, None)


ANSWERS = st.lists(st.lists(st.integers(0, 10**9), min_size=1, max_size=5), min_size=1, max_size=8)


@given(ANSWERS, st.integers(0, 3))
def test_tokens_count_from_the_scheduled_time_and_until_the_end_where_there_are_none(
    answers: list[list[int]], unserved: int
) -> None:
    """``answers`` are the gaps before each token."""
    count = len(answers)
    scheduled = [number * SECOND for number in range(count + unserved)]
    tokens = [
        [scheduled[number] + sum(gaps[: place + 1]) for place in range(len(gaps))]
        for number, gaps in enumerate(answers)
    ]
    table = [(number, at) for number, times in enumerate(tokens) for at in times]
    plan = LoadPlan(np.zeros(count + unserved, int), 60.0, np.array(scheduled, np.int64))
    run = run_of(
        scheduled,
        [times[-1] for times in tokens],
        tokens=np.array(table, np.int64),
        complete=not unserved,
    )
    times = query_times(plan, run)
    waits = [60 * SECOND - time for time in scheduled[count:]]
    firsts = [gaps[0] for gaps in answers]
    each = [sum(gaps[1:]) // (len(gaps) - 1) if len(gaps) > 1 else -1 for gaps in answers]
    assert times.of("query_ttft").tolist() == firsts + waits
    assert times.of("query_tpot").tolist() == each + waits
    assert times.judged("query_tpot").tolist() == [time for time in each if time >= 0] + waits
    seen = TokenTimes.of(scenario_run(run, times).times)
    assert seen is not None
    assert seen.count == sum(map(len, answers))
    np.testing.assert_allclose(np.sort(seen.first), np.sort(firsts + waits) * 1e-9, atol=1e-6)


def test_goodput_is_the_rate_of_those_that_met_every_limit() -> None:
    scheduled = [number * SECOND for number in range(5)]
    delays = [(100, 1), (100, 1), (900, 1), (100, 500), (100, 1)]  # to the first, for the second
    tokens = []
    for number, (first, second) in enumerate(delays):
        at = scheduled[number] + first * 10**6
        tokens += [(number, at), (number, at + second * 10**6)]
    run = run_of(scheduled, [at for _, at in tokens[1::2]], tokens=np.array(tokens, np.int64))
    plan = LoadPlan(np.zeros(5, int), longest=9.0, scheduled=run.scheduled)
    times = query_times(plan, run)
    limits = [
        Limit("query_ttft", 0.5, Place(Path("m.yaml"), 1)),
        Limit("query_tpot", 0.1, Place(Path("m.yaml"), 1)),
    ]
    record = load_record(run, times, seed=0, runs=1, limits=limits)
    assert record.over == 2
    assert record.rate is not None
    assert record.goodput == pytest.approx(record.rate * 3 / 5)
    assert record.tokens is not None
    assert record.tokens["ttft"]["p90"].loadgen == pytest.approx(0.9)
    none = load_record(run, times, seed=0, runs=1, limits=[replace(limits[0], value=0.01)])
    assert none.goodput == 0
    assert load_record(run, times, seed=0, runs=1).goodput is None


def test_an_agent_without_times_of_tokens_is_an_error_where_they_are_limited() -> None:
    run = run_of([0, 20], [50, 100])
    plan = LoadPlan(np.zeros(2, int), longest=9.0, scheduled=run.scheduled)
    with pytest.raises(AgentError, match="the agent tells no times of tokens under load"):
        query_times(plan, run).of("query_ttft")


@given(st.integers(1, 700), st.integers(0, 40), st.sampled_from([0.5, 0.9, 0.99]))
def test_both_limits_pass_only_with_the_queries_that_loadgens_rule_takes(
    served: int, unserved: int, share: float
) -> None:
    count = served + unserved
    scheduled = np.arange(count, dtype=np.int64)
    numbers = np.repeat(np.arange(served), 2)
    keys = {"latency": None, "ttft": "1 s", "tpot": "1 s", "percentile": 100 * share}
    plan = plan_of(server(**keys))
    queries = plan.scheduled(scheduled, 0, 4)
    run = run_of(
        scheduled.tolist(),
        (scheduled[:served] + 2).tolist(),
        tokens=np.column_stack([numbers, scheduled[numbers] + np.tile([1, 2], served)]),
        complete=not unserved,
    )
    found = judge_queries(plan, query_times(queries, run))
    passes = least_within(unserved, share) + unserved <= count and int(count * share) < served
    for verdict in found.values():
        assert verdict.over == unserved
        assert (verdict.verdict is Verdict.PASSED) == passes
