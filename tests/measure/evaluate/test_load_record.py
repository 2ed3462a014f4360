"""Tests of the record of a process under load, by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pytest_mlms.measure.agent.load import LoadPlan, LoadRun
from pytest_mlms.measure.evaluate.load_process import load_record, query_times

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
    record = load_record(run, query_times(plan, run), None, seed=0, runs=1)
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
    record = load_record(run, times, None, seed=0, runs=1)
    assert record.issue_delay == pytest.approx(90e-9)
    nothing = run_of([], [], complete=False)
    assert query_times(plan, nothing).issue_delays.tolist() == [0]


def test_rates_and_percentiles_are_loadgens() -> None:
    scheduled = [number * SECOND // 100 for number in range(101)]
    done = [time + 1_000_000 * (1 + number % 10) for number, time in enumerate(scheduled)]
    run = run_of(scheduled, done)
    plan = LoadPlan(np.zeros(101, int), longest=9.0, scheduled=run.scheduled)
    record = load_record(run, query_times(plan, run), None, seed=3, runs=2)
    assert record.scheduled_rate == pytest.approx(100)
    assert record.rate == pytest.approx(100 / 1.001)
    assert record.percentiles["p90"].loadgen == pytest.approx(0.009)
    assert record.percentiles["p50"].interpolated == pytest.approx(0.005)
    assert record.early_stopping == {"p90": pytest.approx(0.010), "p99": None}
    assert (record.seconds, record.queries, record.unserved, record.over) == (1.0, 101, 0, None)
