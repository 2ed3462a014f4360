"""The state of a worker."""

from __future__ import annotations

from pytest_mlms.distribute.queue import ItemQueue
from pytest_mlms.distribute.workers import Connection, Liveness, WorkerState, are_free
from tests.distribute.fakes import (
    FakeNode,
    RecordingChannel,
    make_needs,
    make_ready_worker,
    make_worker,
)


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
