"""The items that a worker has."""

from __future__ import annotations

import pytest

from pytest_mlms.distribute.assigned_items import AssignedItems
from pytest_mlms.distribute.queue import ItemTable
from tests.distribute.fakes import make_needs

NO_LOCKS: frozenset[str] = frozenset()


def table(count: int, seconds: float | None = None) -> ItemTable:
    ids = [str(number) for number in range(count)]
    known = {} if seconds is None else dict.fromkeys(ids, seconds)
    return ItemTable(ids, [make_needs()], [0] * count, known)


@pytest.mark.parametrize(("seconds", "expected"), [(1.0, 1), (0.03, 3), (0.0001, 64), (None, 1)])
def test_quick_items_are_sent_together_up_to_a_tenth_of_a_second(
    seconds: float | None, expected: int
) -> None:
    items = table(100, seconds)
    batch = AssignedItems().take_batch(items.queues[0], items, most=100)
    assert batch == list(range(expected))
    assert items.waiting == 100 - expected


def test_a_batch_is_never_larger_than_the_share_of_the_worker() -> None:
    items = table(100, 0.0001)
    assert len(AssignedItems().take_batch(items.queues[0], items, most=5)) == 5


def test_items_of_unknown_duration_are_expected_to_take_what_the_last_ones_took() -> None:
    items = table(200)
    assigned = AssignedItems()
    for index in range(30):
        assigned.add_locked([index], NO_LOCKS)
        assigned.complete(index, 0.001)
    assert len(assigned.take_batch(items.queues[0], items, most=100)) > 10


def test_a_worker_needs_another_batch_when_half_of_the_last_is_done() -> None:
    items = table(10, 0.02)
    assigned = AssignedItems()
    assert assigned.needs_batch
    batch = assigned.take_batch(items.queues[0], items, most=4)
    assigned.add_locked(batch, NO_LOCKS)
    assert not assigned.needs_batch
    assigned.complete(batch[0], 0.02)
    assert not assigned.needs_batch
    assigned.complete(batch[1], 0.02)
    assert assigned.needs_batch


def test_only_the_first_item_runs_and_its_locks_are_known() -> None:
    assigned = AssignedItems()
    assert assigned.running is None
    assert assigned.running_locks == NO_LOCKS
    assigned.add_locked([4, 5], frozenset({"GPU-1"}))
    assigned.add([6])  # a test that is no item of a manifest
    assert assigned.running == 4
    assert assigned.running_locks == {"GPU-1"}
    assigned.complete(4, 1)
    assigned.give_back([5])
    assert assigned.running == 6
    assert assigned.running_locks == NO_LOCKS
    assigned.clear()
    assert assigned.running is None
