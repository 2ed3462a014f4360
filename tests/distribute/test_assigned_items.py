"""The items that a worker has."""

from __future__ import annotations

import pytest

from pytest_mlms.distribute.assigned_items import AssignedItems
from pytest_mlms.distribute.queue import ItemTable
from tests.distribute.fakes import make_needs

NO_LOCKS: frozenset[str] = frozenset()


def table(seconds: float | None) -> ItemTable:
    """Return a hundred items with this duration in earlier runs, or with none."""
    ids = [str(number) for number in range(100)]
    known = {}
    if seconds is not None:
        known = dict.fromkeys(ids, seconds)
    return ItemTable(ids, [make_needs()], [0] * 100, known)


def take_batch(assigned: AssignedItems, seconds: float | None, most: int = 100) -> list[int]:
    items = table(seconds)
    return assigned.take_batch(items.queues[0], items, most)


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (1.0, 1),
        (0.03, 3),
        (0.0001, 64),
        (None, 1),
    ],
)
def test_quick_items_are_sent_together_up_to_a_tenth_of_a_second(
    seconds: float | None, expected: int
) -> None:
    batch = take_batch(AssignedItems(), seconds)
    assert batch == list(range(expected))


def test_a_batch_is_taken_out_of_its_queue() -> None:
    items = table(seconds=0.03)
    AssignedItems().take_batch(items.queues[0], items, most=100)
    assert items.waiting == 97


def test_a_batch_is_never_larger_than_the_share_of_the_worker() -> None:
    batch = take_batch(AssignedItems(), seconds=0.0001, most=5)
    assert len(batch) == 5


def test_items_of_unknown_duration_are_expected_to_take_what_the_last_ones_took() -> None:
    assigned = AssignedItems()
    for item in range(30):
        assigned.add_locked([item], NO_LOCKS)
        assigned.complete(item, 0.001)
    batch = take_batch(assigned, seconds=None)
    assert len(batch) > 10


def test_a_worker_needs_another_batch_when_half_of_the_last_is_done() -> None:
    assigned = AssignedItems()
    assert assigned.needs_batch
    batch = take_batch(assigned, seconds=0.02, most=4)
    assigned.add_locked(batch, NO_LOCKS)
    assert not assigned.needs_batch
    assigned.complete(batch[0], 0.02)
    assert not assigned.needs_batch
    assigned.complete(batch[1], 0.02)
    assert assigned.needs_batch


def test_a_worker_without_items_runs_nothing_and_holds_nothing() -> None:
    assigned = AssignedItems()
    assert assigned.running is None
    assert assigned.running_locks == NO_LOCKS


def test_only_the_first_item_runs_and_its_locks_are_known() -> None:
    assigned = AssignedItems()
    assigned.add_locked([4, 5], frozenset({"GPU-1"}))
    assert assigned.running == 4
    assert assigned.running_locks == {"GPU-1"}
    assigned.complete(4, 1)
    assert assigned.running == 5


def test_items_that_are_given_back_and_other_tests_hold_nothing() -> None:
    assigned = AssignedItems()
    assigned.add_locked([4], frozenset({"GPU-1"}))
    assigned.add([6])
    assigned.give_back([4])
    assert assigned.running == 6
    assert assigned.running_locks == NO_LOCKS
    assigned.clear()
    assert assigned.running is None


def test_items_that_share_outputs_go_to_one_worker() -> None:
    table = [make_needs(outputs="m onnxruntime"), make_needs(outputs="m pytorch"), make_needs()]
    items = ItemTable(["a", "b", "c", "d", "e"], table, [0, 1, 2, 0, 1], {})
    first = AssignedItems().take_batch(items.queues[0], items, most=1)
    second = AssignedItems().take_batch(items.queues[0], items, most=1)
    assert first == [0, 3]
    assert second == [1, 4]
    assert list(items.queues[0].waiting) == [2]


def test_an_item_whose_partner_another_worker_has_is_taken_alone() -> None:
    items = ItemTable(["a", "b"], [make_needs(outputs="m x")], [0, 0], {})
    items.queues[0].waiting.remove(1)
    assert AssignedItems().take_batch(items.queues[0], items, most=1) == [0]
