"""The table of items, and their queues."""

from __future__ import annotations

import math

from pytest_mlms.distribute.queue import ItemTable, Retry
from tests.distribute.fakes import make_needs


def test_the_longest_items_wait_first_and_new_ones_before_them() -> None:
    items = ItemTable(["a", "b", "new", "other"], [make_needs()], [0, 0, 0, -1], {"a": 2, "b": 6})
    assert list(items.queues[0].waiting) == [2, 1, 0]
    assert items.other_items == [3]
    assert items.unfinished == 3
    assert items.waiting == 3


def test_items_keep_their_order_where_no_duration_is_known() -> None:
    items = ItemTable(["a", "b", "c"], [make_needs()], [0, 0, 0], {})
    assert list(items.queues[0].waiting) == [0, 1, 2]


def test_items_that_the_same_hosts_can_run_share_a_queue() -> None:
    small = make_needs(batch_size=1)
    large = make_needs(batch_size=8)
    on_gpu = make_needs(device="cuda")
    newer = make_needs(model={"framework": "onnxruntime >=1.30"})
    items = ItemTable(["a", "b", "c", "d"], [small, large, on_gpu, newer], [0, 1, 2, 3], {})
    assert [list(queue.waiting) for queue in items.queues] == [[0, 1], [2], [3]]
    assert items.queue_of(1) is items.queue_of(0)
    assert items.needs(2) == on_gpu


def test_all_cases_have_their_first_visit_before_the_second_of_any() -> None:
    first = make_needs(visit=1)
    second = make_needs(visit=2)
    items = ItemTable(["a2", "b1"], [second, first], [0, 1], {"b1": 1})
    assert list(items.queues[0].waiting) == [1, 0]


def test_items_that_are_put_back_wait_at_the_head() -> None:
    items = ItemTable(["a", "b", "c"], [make_needs()], [0, 0, 0], {})
    waiting = items.queues[0].waiting
    taken = [waiting.popleft(), waiting.popleft()]
    items.put_back(taken)
    assert list(waiting) == [0, 1, 2]


def test_an_item_that_a_host_lost_waits_in_a_queue_of_its_own() -> None:
    items = ItemTable(["a", "b"], [make_needs()], [0, 0], {})
    items.queues[0].waiting.remove(0)
    items.retry_elsewhere(0, lost_by="gpu1", reason="gpu1 was lost")
    assert list(items.queues[0].waiting) == [0]
    assert items.queues[0].lost_by == "gpu1"
    assert items.retries[0] == Retry(2, "gpu1 was lost")


def test_a_finished_item_gives_its_duration_to_the_table() -> None:
    items = ItemTable(["a", "b"], [make_needs()], [0, 0], {})
    assert items.expected_seconds(0) == math.inf
    items.finish(0, 7)
    assert items.expected_seconds(0) == 7
    assert items.known_seconds == [7]
    assert items.unfinished == 1


def test_an_empty_table_has_nothing_to_do() -> None:
    items = ItemTable.empty()
    assert items.queues == []
    assert items.waiting == 0
    assert items.unfinished == 0
