"""Loads on a model in a real agent, and their plans and records."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mlms_predictors._run.load_request import READINGS, RECORDS, TOKENS
from mlms_predictors._run.protocol import ProtocolError
from mlms_predictors._run.replies import LoadRunReply

from pytest_mlms.measure.agent.load import (
    Batcher,
    LoadInterrupted,
    LoadLost,
    LoadPlan,
    LoadRecords,
    LoadRun,
)
from pytest_mlms.measure.agent.predictor import Predictor
from tests.support.load_agents import LIBRARY, every, in_turn, open_server

MS = 1_000_000  # nanoseconds


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Predictor]:
    with open_server(tmp_path_factory.mktemp("server")) as opened:
        yield opened


def plan_of(count: int, milliseconds: float = 1, **fields: Any) -> LoadPlan:
    return LoadPlan(in_turn(count), 60, every(milliseconds, count), **fields)


def test_each_query_of_a_schedule_is_served_once(server: Predictor) -> None:
    run = server.load_run(LIBRARY, plan_of(200))
    assert run.complete
    assert run.queries.tolist() == list(range(200))
    assert np.array_equal(run.scheduled, every(1, 200))
    assert (run.issued >= run.scheduled).all()
    assert (run.started >= run.issued).all()
    assert (run.done >= run.started).all()
    assert (run.batch_sizes == 1).all()
    told = [(call.samples, call.outputs["y"].tolist()) for call in server.served_calls().told]
    assert sorted(told) == [([place], [place]) for place in range(len(LIBRARY))]
    assert run.peak_bytes is not None
    assert run.peak_bytes > 0


def test_samples_stay_for_the_next_load(server: Predictor) -> None:
    server.load_run(LIBRARY, plan_of(2))
    assert len(server.load_run((), plan_of(3)).done) == 3


def test_a_query_arrives_when_the_one_before_is_done(server: Predictor) -> None:
    run = server.load_run(LIBRARY, LoadPlan(in_turn(3), 60, least=10))
    assert len(run.done) == 10
    assert np.array_equal(run.scheduled[1:], run.done[:-1])


def test_a_query_of_several_samples_is_one_batch(server: Predictor) -> None:
    plan = LoadPlan(np.array([0, 1, 2, 3, 2, 1]), 60, samples_per_query=3, least=2)
    run = server.load_run(LIBRARY, plan)
    assert run.batch_sizes.tolist() == [3, 3]
    for call, samples in zip(server.served_calls().told, ([0, 1, 2], [3, 2, 1]), strict=True):
        assert call.samples == call.outputs["y"].tolist() == samples
        assert call.batch(LIBRARY)["x"][:, 0].tolist() == samples


def test_a_batcher_joins_queries_that_wait(tmp_path: Path) -> None:
    together = np.zeros(10, np.int64)
    plan = LoadPlan(in_turn(10), 60, together, batcher=Batcher(4, 20 * MS))
    with open_server(tmp_path) as server:
        run = server.load_run(LIBRARY, plan)
    assert run.batch_sizes.tolist() == [4] * 8 + [2] * 2
    waited = run.done[8:]
    assert (waited >= 20 * MS).all(), "the last two wait for others as long as they may"


def test_a_size_of_a_batch_is_prepared_once(tmp_path: Path) -> None:
    plan = plan_of(6, batcher=Batcher(1_000_000, 0))
    with open_server(tmp_path, fault=100) as server:
        for _ in range(10):  # 7 calls each, and 5 more in the first; 12 each if all were prepared
            assert server.load_run(LIBRARY, plan).complete


def test_a_batch_that_the_model_can_not_take_names_axis_and_size(tmp_path: Path) -> None:
    advice = "a batch of 4 does not fit input 'x', whose axis 0 is fixed at 1"
    with open_server(tmp_path, axis=1) as server:
        with pytest.raises(LoadLost, match=advice):
            server.load_run(LIBRARY, plan_of(8, batcher=Batcher(4, MS)))
        with pytest.raises(LoadLost, match="a batch of 2 does not fit input 'x'"):
            server.load_run(LIBRARY, LoadPlan(in_turn(4), 60, samples_per_query=2))
        assert server.load_run(LIBRARY, plan_of(2)).complete


def test_a_stall_is_in_the_latency_of_all_queries_that_it_delays(tmp_path: Path) -> None:
    with open_server(tmp_path, stall=20) as server:
        run = server.load_run(LIBRARY, plan_of(100, 5))
    late = run.latencies > 0.05
    assert late.sum() >= 9, "those that were due in the first half of 100 ms"
    assert np.percentile(run.latencies, 99) > 0.05


def test_a_call_that_keeps_pythons_lock_is_our_own_lag(tmp_path: Path) -> None:
    with open_server(tmp_path, seconds=0.05, hold="lock") as server:
        alone = server.load_run(LIBRARY, plan_of(2, 5))
        both = server.load_run(LIBRARY, plan_of(8, 5, instances=2))  # some come in a call
    assert alone.latencies.max() > 0.09, "the second waits in the queue"
    assert alone.issue_delays.max() < 0.04, "and that is no lag"
    assert both.issue_delays.max() > 0.04, "an instance was idle, and could not begin"


def test_the_threads_of_instances_that_compute_are_counted(tmp_path: Path) -> None:
    with open_server(tmp_path, seconds=0.05, hold="python") as server:
        alone = server.load_run(LIBRARY, plan_of(4, 5))
        both = server.load_run(LIBRARY, plan_of(4, 5, instances=2))
    assert (alone.busy, both.busy) == (1, 2)


def test_instances_serve_at_the_same_time(tmp_path: Path) -> None:
    together = np.zeros(4, np.int64)
    with open_server(tmp_path, seconds=0.2, hoard=2) as server:
        run = server.load_run(LIBRARY, LoadPlan(in_turn(4), 60, together, instances=4))
        assert len(run.instance_bytes) == 3
        assert min(run.instance_bytes) >= 2 << 20
        assert run.instances == 4
        fewer = server.load_run((), plan_of(2, instances=2))
    assert run.done.max() < 0.6e9, "one after another they would take 0.8 s"
    assert len(fewer.instance_bytes) == 1


def test_a_second_instance_that_can_not_be_loaded_is_an_error(tmp_path: Path) -> None:
    error = "instance 2 of 2 can't be loaded: RuntimeError: one model in a process"
    with open_server(tmp_path, single=True) as server, pytest.raises(LoadLost, match=error):
        server.load_run(LIBRARY, plan_of(2, instances=2))


def test_instances_that_do_not_fit_say_what_one_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytest_mlms.measure.agent.load.available_memory", lambda: 50 << 20)
    error = r"4 instances don't fit: one takes 3\d MB of memory, and 52 MB are free for 3 more"
    with open_server(tmp_path, hoard=32) as server, pytest.raises(LoadLost, match=error):
        server.load_run(LIBRARY, plan_of(2, instances=4))


def test_a_call_that_fails_leaves_the_queries_before_it(tmp_path: Path) -> None:
    error = "RuntimeError: call 31 is one too many"
    with open_server(tmp_path, fault=31) as server:
        with pytest.raises(LoadLost, match=error) as lost:
            server.load_run(LIBRARY, plan_of(100))
        assert server.agent.alive
    assert len(lost.value.run.done) == 29, "the first call was no query"
    assert not lost.value.run.complete


def test_an_agent_that_dies_leaves_the_blocks_that_were_received(tmp_path: Path) -> None:
    ending = pytest.raises(LoadLost, match="exit status 7")
    with open_server(tmp_path, die=200) as server, ending as lost:
        server.load_run(LIBRARY, plan_of(1000, 5))
    count = len(lost.value.run.done)
    assert 0 < count < 200
    assert lost.value.run.queries.tolist() == list(range(count))


def test_an_interrupted_load_leaves_what_was_measured(tmp_path: Path) -> None:
    with open_server(tmp_path) as server:
        timer = threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        with pytest.raises(LoadInterrupted) as interrupted:
            server.load_run(LIBRARY, plan_of(10_000, 5))
        timer.join()
        assert not server.agent.alive
    assert len(interrupted.value.run.done) > 0


def test_a_load_ends_at_its_limit_of_time(server: Predictor) -> None:
    plan = LoadPlan(in_turn(1000), 0.05, every(10, 1000))
    run = server.load_run(LIBRARY, plan)
    assert not run.complete
    assert 0 < len(run.done) < 100
    single = server.load_run(LIBRARY, LoadPlan(in_turn(4), 0.05, seconds=60))
    assert single.done[-2] <= 50 * MS


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"scheduled": np.array([2, 1], np.int64)}, "ascending"),
        ({"scheduled": np.array([-1, 1], np.int64)}, "whole nanoseconds"),
        ({"scheduled": np.array([0.5, 1])}, "whole nanoseconds"),
        ({"scheduled": np.zeros(3, np.int64)}, "as many samples"),
        ({"samples_per_query": 3}, "whole queries"),
        ({"instances": 2}, "one instance"),
        ({"batcher": Batcher(2, 0)}, "no batcher"),
    ],
)
def test_a_plan_that_can_not_be_run_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LoadPlan(np.arange(2), 60, **fields)


RECORD = [0, 0, 1, 1, 2, 1]
READING = np.zeros((1, 3), np.int64)


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ([RECORD, RECORD], "served twice"),
        ([[2, 0, 1, 1, 2, 1]], "was not scheduled"),
        ([[-1, 0, 1, 1, 2, 1]], "was not scheduled"),
        ([[1, 0, 1, 1, 2, 1]], "another scheduled time"),
        ([[0, 0, -1, 1, 2, 1]], "before it was due"),
        ([[0, 0, 1, 1, 0, 1]], "before it was due"),
        ([[0, 0, 1, 2]], "4 columns"),
        ([0, 0, 1, 1, 2, 1], "no table"),
    ],
)
def test_records_that_can_not_be_are_refused(records: list[Any], message: str) -> None:
    scheduled = np.array([0, 5], np.int64)
    found = LoadRecords(LoadPlan(np.arange(2), 60, scheduled))
    found.add({RECORDS: np.array([[1, 5, 5, 5, 6, 1]]), READINGS: READING})
    with pytest.raises(ProtocolError, match=message):
        found.add({RECORDS: np.array(records), READINGS: READING})


def test_records_that_do_not_follow_are_refused() -> None:
    found = LoadRecords(LoadPlan(np.arange(2), 60))
    with pytest.raises(ProtocolError, match="not those that follow"):
        found.add({RECORDS: np.array([[1, 5, 5, 5, 6, 1]]), READINGS: READING})


LOADED = LoadRunReply(1 << 20, 0, [], {}, {}, "")
BOTH = np.array([[1, 5, 5, 5, 9, 1], [0, 0, 1, 1, 4, 1]])


def finished(found: LoadRecords, arrays: dict[str, Any]) -> LoadRun:
    """Add the last part of a load; return it."""
    found.add(arrays)
    return found.run(LOADED)


def test_tokens_are_in_the_order_of_their_queries() -> None:
    found = LoadRecords(LoadPlan(np.arange(2), 60, np.array([0, 5], np.int64)))
    found.add({RECORDS: BOTH[:1], READINGS: READING, TOKENS: np.array([[1, 6], [0, 2]])})
    assert found.run().tokens.tolist() == [[1, 6]], "a query that is not recorded yet has none"
    found.add({RECORDS: BOTH[1:], READINGS: READING, TOKENS: np.array([[0, 4]])})
    assert found.run(LOADED).tokens.tolist() == [[0, 2], [0, 4], [1, 6]]


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        ([[0, 2]], "a query without a token"),
        ([[0, 2], [1, 6], [2, 6]], "tokens of a query that was not served"),
        ([[0, 0], [1, 6]], "outside of its call"),
        ([[0, 2], [1, 10]], "outside of its call"),
        ([[0, 3], [0, 2], [1, 6]], "before the last token"),
        ([[0, 2, 1]], "3 columns"),
    ],
)
def test_tokens_that_can_not_be_are_refused(tokens: list[Any], message: str) -> None:
    found = LoadRecords(LoadPlan(np.arange(2), 60, np.array([0, 5], np.int64)))
    arrays = {RECORDS: BOTH, READINGS: READING, TOKENS: np.array(tokens)}
    with pytest.raises(ProtocolError, match=message):
        finished(found, arrays)


@pytest.mark.slow
def test_ten_million_arrivals_take_no_memory_but_their_schedule(tmp_path: Path) -> None:
    count = 10_000_000
    scheduled = np.arange(count, dtype=np.int64) * 100
    plan = LoadPlan(np.zeros(count, np.int32), 5, scheduled)
    with open_server(tmp_path) as server:
        before = server.load_run(LIBRARY, plan_of(100)).peak_bytes
        run = server.load_run((), plan)
    assert before is not None
    assert run.peak_bytes is not None
    assert run.peak_bytes - before < 64 << 20, "an object each would take 300 MB and more"
    assert not run.complete
    assert len(run.done) > 10_000
    assert np.array_equal(run.queries, np.arange(len(run.done)))
