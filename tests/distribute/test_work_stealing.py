"""Work stealing between fakes of workers."""

from __future__ import annotations

import pytest

from pytest_mlms.distribute.queue import ItemTable
from pytest_mlms.distribute.work_stealing import steal_for
from pytest_mlms.distribute.workers import WorkerState
from tests.distribute.fakes import make_needs, make_ready_worker

NO_LOCKS: frozenset[str] = frozenset()


@pytest.fixture
def items() -> ItemTable:
    ids = [str(number) for number in range(10)]
    rows = [0] * 10
    return ItemTable(ids, [make_needs()], rows, {})


def worker_with(name: str, indices: list[int]) -> WorkerState:
    worker = make_ready_worker("a", name)
    worker.assigned.add_locked(indices, NO_LOCKS)
    return worker


def test_half_of_what_waits_is_asked_back_from_the_worker_with_most(items: ItemTable) -> None:
    idle = worker_with("gw0", [])
    short = worker_with("gw1", [0, 1])
    long = worker_with("gw2", [2, 3, 4, 5, 6])
    steal_for(idle, [idle, short, long], items)
    assert long.node.asked_back == [[5, 6]]
    assert short.node.asked_back == []


def test_a_worker_is_asked_again_only_after_its_answer(items: ItemTable) -> None:
    idle = worker_with("gw0", [])
    busy = worker_with("gw1", [0, 1, 2])
    steal_for(idle, [idle, busy], items)
    steal_for(idle, [idle, busy], items)
    assert busy.node.asked_back == [[2]]


def test_what_was_denied_is_not_asked_for_again(items: ItemTable) -> None:
    idle = worker_with("gw0", [])
    busy = worker_with("gw1", [0, 1])
    busy.assigned.denied = [1]
    steal_for(idle, [idle, busy], items)
    assert busy.node.asked_back == []


def test_items_that_are_run_again_or_are_other_tests_stay(items: ItemTable) -> None:
    idle = worker_with("gw0", [])
    busy = worker_with("gw1", [0, 1])
    busy.assigned.add([9])
    items.retry_elsewhere(1, "b", "b was lost")
    steal_for(idle, [idle, busy], items)
    assert busy.node.asked_back == []


def test_an_item_whose_device_is_in_use_stays() -> None:
    on_gpu = make_needs(device="cuda", exclusive=True)
    items = ItemTable(["0", "1"], [on_gpu], [0, 0], {})
    idle = worker_with("gw0", [])
    busy = make_ready_worker("a", "gw1")
    locks = busy.locks_for(items.queues[0])
    busy.assigned.add_locked([0, 1], locks)
    steal_for(idle, [idle, busy], items)
    assert busy.node.asked_back == []
    elsewhere = make_ready_worker("b", "gw2")
    steal_for(elsewhere, [elsewhere, busy], items)
    assert busy.node.asked_back == [[1]]


def test_items_whose_outputs_the_worker_computes_stay() -> None:
    items = ItemTable(["a", "b", "c"], [make_needs(outputs="m x"), make_needs()], [0, 0, 1], {})
    idle = worker_with("gw0", [])
    busy = worker_with("gw1", [0, 1])
    steal_for(idle, [idle, busy], items)
    assert busy.node.asked_back == []
    busy = worker_with("gw1", [2, 1])
    steal_for(idle, [idle, busy], items)
    assert busy.node.asked_back == [[1]]
