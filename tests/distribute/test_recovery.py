"""Items of workers that were lost."""

from __future__ import annotations

import pytest

from pytest_mlms.distribute.notices import Notices
from pytest_mlms.distribute.queue import ItemTable
from pytest_mlms.distribute.recovery import AbandonedItem, abandon_items, recover_items
from pytest_mlms.distribute.workers import WorkerState
from tests.distribute.fakes import make_needs, make_notices, make_worker

NO_LOCKS: frozenset[str] = frozenset()


@pytest.fixture
def notices() -> Notices:
    return make_notices()


@pytest.fixture
def items() -> ItemTable:
    table = ItemTable(["a", "b", "c", "other"], [make_needs()], [0, 0, 0, -1], {})
    table.queues[0].waiting.clear()
    return table


def worker_with(indices: list[int]) -> WorkerState:
    worker = make_worker("gpu1")
    worker.assigned.add_locked(indices, NO_LOCKS)
    return worker


def test_the_running_item_is_run_again_and_the_others_wait(
    items: ItemTable, notices: Notices
) -> None:
    assert recover_items(worker_with([0, 1]), items, notices) is None
    assert [list(queue.waiting) for queue in items.queues] == [[0], [1]]
    assert items.queues[0].lost_by == "gpu1"
    assert items.retries[0].earlier == "gpu1 (gw0) was lost while it ran"
    assert items.unfinished == 3


def test_an_item_that_loses_its_second_worker_is_lost(items: ItemTable, notices: Notices) -> None:
    recover_items(worker_with([0]), items, notices)
    items.queues[0].waiting.clear()
    assert recover_items(worker_with([0]), items, notices) == "a"
    assert items.waiting == 0
    assert items.unfinished == 2


def test_an_item_whose_result_is_here_is_done(items: ItemTable, notices: Notices) -> None:
    items.with_result.add(0)
    assert recover_items(worker_with([0]), items, notices) is None
    assert items.waiting == 0
    assert items.unfinished == 2


def test_items_behind_another_test_wait_again_without_a_retry(
    items: ItemTable, notices: Notices
) -> None:
    worker = make_worker("gpu1")
    worker.assigned.add([3])
    worker.assigned.add_locked([0], NO_LOCKS)
    assert recover_items(worker, items, notices) is None
    assert list(items.queues[0].waiting) == [0]
    assert not items.retries


def test_abandoned_items_count_as_done(items: ItemTable) -> None:
    items.put_back([0, 2])
    found = abandon_items(items, "no worker is left")
    assert found == [AbandonedItem(0, "no worker is left"), AbandonedItem(2, "no worker is left")]
    assert items.unfinished == 1
    assert items.waiting == 0
