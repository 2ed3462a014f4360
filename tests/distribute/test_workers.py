"""The state of a worker."""

from __future__ import annotations

import pytest

from pytest_mlms.distribute.queue import ItemQueue, ItemTable
from pytest_mlms.distribute.workers import (
    AssignedItems,
    Connection,
    Liveness,
    SilenceMonitor,
    WorkerState,
    are_free,
)
from tests.distribute.fakes import (
    FakeNode,
    RecordingChannel,
    make_needs,
    make_ready_worker,
    make_worker,
)

NO_LOCKS: frozenset[str] = frozenset()


def test_a_worker_is_named_by_its_host_once_it_has_announced_it() -> None:
    worker = WorkerState(Connection(FakeNode("gw3"), RecordingChannel()))
    assert worker.name == "gw3"
    assert worker.host_name == "?"
    assert make_worker("gpu1", "gw3").name == "gpu1 (gw3)"


def test_a_worker_is_ready_when_it_has_collected_until_it_shuts_down() -> None:
    worker = make_worker()
    assert not worker.is_ready
    worker.collected = True
    assert worker.is_ready
    worker.node.shutdown()
    assert not worker.is_ready


def test_a_worker_can_run_what_its_host_has() -> None:
    worker = make_worker()
    assert worker.can_run(ItemQueue(make_needs(device="cuda")))
    assert not worker.can_run(ItemQueue(make_needs(framework="mxnet")))


def test_an_item_locks_its_device_only_where_it_holds_it_alone() -> None:
    worker = make_worker("a")
    on_gpu = ItemQueue(make_needs(device="cuda", exclusive=True))
    assert worker.locks_for(on_gpu) == {"GPU-a"}
    assert worker.locks_for(ItemQueue(make_needs(device="cuda"))) == frozenset()


def test_a_lock_is_free_unless_another_worker_holds_it() -> None:
    one = make_ready_worker("a", "gw0")
    other = make_ready_worker("a", "gw1")
    locks = frozenset({"GPU-1"})
    assert are_free(locks, one, [one, other])
    one.assigned.add_locked([0], locks)
    assert are_free(locks, one, [one, other])
    assert not are_free(locks, other, [one, other])
    assert are_free(frozenset(), other, [one, other])


def test_a_host_has_lost_what_it_lost_and_everything_when_its_disk_is_full() -> None:
    worker = make_worker("a")
    assert worker.has_lost(ItemQueue(make_needs(), lost_by="a"))
    assert not worker.has_lost(ItemQueue(make_needs(), lost_by="b"))
    worker.disk_full = True
    assert worker.has_lost(ItemQueue(make_needs()))


def test_silence_counts_from_the_last_message_and_less_before_the_first() -> None:
    channel = RecordingChannel()
    liveness = Liveness(channel, counts_from=100)
    assert liveness.silence(200) == 20
    channel.last_message = 150
    assert liveness.silence(200) == 50
    liveness.counts_from = 190
    assert liveness.silence(200) == 10


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


def heard_at(time: float) -> WorkerState:
    worker = make_worker()
    worker.liveness.counts_from = 0
    worker.liveness.channel.last_message = time
    return worker


def test_a_worker_without_a_message_for_the_limit_is_found_once() -> None:
    monitor = SilenceMonitor(limit=60, now=99)
    silent = heard_at(39)
    alive = heard_at(50)
    assert monitor.find_silent([silent, alive], now=100) == [silent]
    assert monitor.find_silent([silent, alive], now=101) == []


def test_silence_does_not_count_while_this_process_was_stopped() -> None:
    monitor = SilenceMonitor(limit=60, now=100)
    worker = heard_at(99)
    assert monitor.find_silent([worker], now=1000) == []
    assert worker.liveness.silence(1010) == 10
    assert monitor.find_silent([worker], now=1001) == []
