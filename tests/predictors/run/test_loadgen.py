"""Queries of LoadGen and the instances that serve them, without LoadGen itself."""

from __future__ import annotations

import sys
import threading
import time

import pytest
from mlms_predictors._run import loadgen
from mlms_predictors._run.loadgen import _Query, _Queue


def query(number: int) -> _Query:
    return _Query((number,), (number,), time.perf_counter())


def test_a_missing_loadgen_names_the_requirement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlperf_loadgen", None)
    with pytest.raises(
        RuntimeError, match="add mlcommons_loadgen to the requirements of the stack"
    ):
        loadgen.import_loadgen("/opt/python")


def test_queries_are_taken_in_the_order_in_which_they_came() -> None:
    queue = _Queue(1, 0.0)
    queue.put([query(1), query(2)])
    assert [taken.ids for taken in queue.take() or ()] == [(1,)]
    assert [taken.ids for taken in queue.take() or ()] == [(2,)]


def test_queries_that_wait_together_are_one_batch() -> None:
    queue = _Queue(3, 60.0)
    queue.put([query(number) for number in range(4)])
    assert [taken.ids for taken in queue.take() or ()] == [(0,), (1,), (2,)]


def test_a_batch_is_closed_after_its_delay() -> None:
    queue = _Queue(3, 0.01)
    queue.put([query(1)])
    assert [taken.ids for taken in queue.take() or ()] == [(1,)]


def test_a_closed_queue_lets_everybody_go_and_returns_what_waited() -> None:
    queue = _Queue(1, 0.0)
    found: list[object] = []
    waiting = [threading.Thread(target=lambda: found.append(queue.take())) for _ in range(3)]
    for thread in waiting:
        thread.start()
    queue.close()
    for thread in waiting:
        thread.join(10)
    assert found == [None, None, None]
    other = _Queue(1, 0.0)
    other.put([query(5)])
    assert [left.ids for left in other.close()] == [(5,)]
