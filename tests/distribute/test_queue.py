"""The table of items, and their queues."""

from __future__ import annotations

import math

from pytest_mlms.distribute.queue import ItemTable, Retry
from tests.distribute.fakes import make_needs


def table_of(count: int, seconds: dict[str, float] | None = None) -> ItemTable:
    """Return a table of items that the same hosts can run, with the ids "0", "1", …"""
    ids = [str(number) for number in range(count)]
    rows = [0] * count
    return ItemTable(ids, [make_needs()], rows, seconds or {})


def waiting_in(items: ItemTable) -> list[list[int]]:
    return [list(queue.waiting) for queue in items.queues]


def test_the_longest_items_wait_first_and_new_ones_before_them() -> None:
    items = table_of(3, {"0": 2, "1": 6})
    assert waiting_in(items) == [[2, 1, 0]]


def test_items_keep_their_order_where_no_duration_is_known() -> None:
    items = table_of(3)
    assert waiting_in(items) == [[0, 1, 2]]


def test_other_tests_wait_in_no_queue() -> None:
    ids = ["case", "other", "case"]
    rows = [0, -1, 0]
    items = ItemTable(ids, [make_needs()], rows, {})
    assert items.other_items == [1]
    assert items.is_of_manifest(0)
    assert not items.is_of_manifest(1)
    assert waiting_in(items) == [[0, 2]]
    assert items.unfinished == 2
    assert items.waiting == 2


def test_items_that_the_same_hosts_can_run_share_a_queue() -> None:
    table = [
        make_needs(batch_size=1),
        make_needs(batch_size=8),
        make_needs(device="cuda"),
        make_needs(model={"framework": "onnxruntime >=1.30"}),
    ]
    ids = ["a", "b", "c", "d"]
    items = ItemTable(ids, table, [0, 1, 2, 3], {})
    assert waiting_in(items) == [[0, 1], [2], [3]]
    assert items.queue_of(1) is items.queue_of(0)
    assert items.needs(2) == table[2]


def test_all_cases_have_their_first_visit_before_the_second_of_any() -> None:
    second = make_needs(visit=2)
    first = make_needs(visit=1)
    ids = ["a2", "b1"]
    items = ItemTable(ids, [second, first], [0, 1], {"b1": 1})
    assert waiting_in(items) == [[1, 0]]


def test_items_that_are_put_back_wait_at_the_head() -> None:
    items = table_of(3)
    waiting = items.queues[0].waiting
    first = waiting.popleft()
    second = waiting.popleft()
    items.put_back([first, second])
    assert waiting_in(items) == [[0, 1, 2]]


def test_an_item_that_a_host_lost_waits_in_a_queue_of_its_own() -> None:
    items = table_of(2)
    items.queues[0].waiting.remove(0)
    items.retry_elsewhere(0, lost_by="gpu1", reason="gpu1 was lost")
    assert waiting_in(items) == [[0], [1]]
    assert items.queues[0].lost_by == "gpu1"
    assert items.retries[0] == Retry(2, "gpu1 was lost")


def test_a_finished_item_gives_its_duration_to_the_table() -> None:
    items = table_of(2)
    assert items.expected_seconds(0) == math.inf
    items.finish(0, 7)
    assert items.expected_seconds(0) == 7
    assert items.known_seconds == [7]
    assert items.unfinished == 1


def test_an_empty_table_has_nothing_to_do() -> None:
    items = ItemTable.empty()
    assert waiting_in(items) == []
    assert items.waiting == 0
    assert items.unfinished == 0


def sharing() -> ItemTable:
    """Return items 0 to 3, of which 0 and 3 share outputs, and so do 1 and 2 with another text."""
    table = [make_needs(outputs="m onnxruntime"), make_needs(outputs="m pytorch")]
    return ItemTable(["a", "b", "c", "d", "other"], table, [0, 1, 1, 0, -1], {})


def test_items_of_the_same_outputs_know_each_other() -> None:
    items = sharing()
    assert [items.sharing_with(index) for index in range(4)] == [[3], [2], [1], [0]]
    assert table_of(2).sharing_with(0) == []
