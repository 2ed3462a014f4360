"""Error reports of one_item that no worker could finish."""

from __future__ import annotations

import pytest

from pytest_mlms.distribute.lost_items import (
    AbandonedItem,
    LostItem,
    abandon_items,
    as_error,
    recover_items,
    report_of,
)
from pytest_mlms.distribute.notices import Notices
from pytest_mlms.distribute.queue import ItemTable
from pytest_mlms.distribute.workers import WorkerState
from tests.distribute.fakes import make_needs, make_notices, make_worker

NODEID = "m.yaml::test_performance[x]"
COMMAND = f"reproduce: pytest '{NODEID}'"
NO_LOCKS: frozenset[str] = frozenset()


@pytest.fixture
def one_item() -> ItemTable:
    needs = make_needs(case="x", kind="performance", manifest={"name": "digits"})
    return ItemTable([NODEID], [needs], [0], {})


def abandon(one_item: ItemTable, pytester: pytest.Pytester) -> pytest.TestReport:
    config = pytester.parseconfig()
    return report_of(AbandonedItem(0, "no worker is left"), one_item, config)


def test_an_abandoned_item_fails_with_its_reason_and_has_a_result(
    one_item: ItemTable, pytester: pytest.Pytester
) -> None:
    report = abandon(one_item, pytester)
    assert report.nodeid == NODEID
    assert report.failed
    assert report.head_line == "digits: test_performance[x]"
    assert report.longreprtext == f"digits x: not run: no worker is left\n{COMMAND}"
    result = report.mlms
    assert result["verdict"] == "ERROR"
    assert result["case"] == "x"
    assert result["message"] == "digits x: not run: no worker is left"
    assert "attempt" not in result


def test_what_only_chooses_a_host_is_not_in_the_result(
    one_item: ItemTable, pytester: pytest.Pytester
) -> None:
    result = abandon(one_item, pytester).mlms
    assert not {"exclusive", "here", "hardware"} & result.keys()


def test_a_second_attempt_is_in_the_result(one_item: ItemTable, pytester: pytest.Pytester) -> None:
    one_item.retry_elsewhere(0, "gpu1", "gpu1 was lost")
    report = abandon(one_item, pytester)
    item = LostItem.of(one_item, 0, "gpu1 was lost; then gpu2")
    as_error(report, item, pytester.parseconfig())
    result = report.mlms
    assert result["attempt"] == 2
    assert result["earlier"] == "gpu1 was lost"
    assert result["message"] == "digits x: gpu1 was lost; then gpu2"


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
