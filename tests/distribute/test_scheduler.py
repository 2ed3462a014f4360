"""The choice of the worker for each item, with hand-written fakes of workers."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pytest

from pytest_mlms.distribute.messages import (
    ItemRefusal,
    ItemRetry,
    RefusedOutcome,
    WorkerAnnouncement,
)
from pytest_mlms.distribute.progress import summary
from pytest_mlms.distribute.queue import ItemTable
from pytest_mlms.distribute.scheduler import FleetScheduler, RunInfo, steal_for
from pytest_mlms.distribute.workers import Connection, WorkerState
from pytest_mlms.provide.host.matching import Needs
from tests.distribute.fakes import (
    FakeNode,
    RecordingChannel,
    make_capabilities,
    make_needs,
    make_notices,
    make_ready_worker,
    make_worker,
)

NO_LOCKS: frozenset[str] = frozenset()


class Run(NamedTuple):
    """A scheduler that has begun; ``losses`` are those of its run."""

    scheduler: FleetScheduler
    by_node: dict[Any, WorkerState]
    losses: list[str]

    @property
    def workers(self) -> list[WorkerState]:
        return list(self.by_node.values())

    @property
    def nodes(self) -> list[FakeNode]:
        return list(self.by_node)

    def add(self, worker: WorkerState, ids: Sequence[str]) -> None:
        """Add a worker that has collected."""
        self.by_node[worker.node] = worker
        self.scheduler.add_node(worker.node)
        self.scheduler.add_node_collection(worker.node, ids)

    def complete(self, worker: int, item: int, seconds: float = 0) -> None:
        self.scheduler.mark_test_complete(self.nodes[worker], item, seconds)

    def lose(self, worker: int) -> str | None:
        return self.scheduler.remove_node(self.nodes[worker])

    def received(self) -> list[list[int]]:
        return [node.received for node in self.nodes]


def make_run(seconds: Mapping[str, float] | None = None, strict: bool = False) -> Run:
    """Return a run without workers; ``seconds`` are the durations of items in earlier runs."""
    notices = make_notices()
    info = RunInfo(notices, seconds or {}, strict, expects_workers=lambda: False)
    workers: dict[Any, WorkerState] = {}
    scheduler = FleetScheduler(workers, info)
    return Run(scheduler, workers, notices.losses)


def begin(
    hosts: Sequence[str],
    items: int,
    seconds: Mapping[str, float] | None = None,
    needs: Needs | None = None,
    strict: bool = False,
) -> Run:
    """Return a run of ``items`` items, numbered from 0, with a worker on each of ``hosts``.

    ``seconds`` are the durations of items in earlier runs.
    """
    run = make_run(seconds, strict)
    table = [needs or make_needs()]
    rows = [0] * items
    ids = [str(number) for number in range(items)]
    for number, host in enumerate(hosts):
        announcement = WorkerAnnouncement(make_capabilities(host), table, rows)
        worker = make_worker(host, f"gw{number}", announcement)
        run.add(worker, ids)
    run.scheduler.schedule()
    return run


def all_take(items: int, seconds: float) -> dict[str, float]:
    """Return the same duration for all items."""
    return {str(number): seconds for number in range(items)}


def sent_to(worker: WorkerState) -> list[Any]:
    """Return the messages that a worker was sent."""
    channel = worker.connection.channel
    assert isinstance(channel, RecordingChannel)
    return list(channel.sent)


def test_an_item_that_a_host_lost_goes_to_another_host() -> None:
    run = begin(["a", "a", "b"], items=4)
    assert run.received() == [[0], [1], [2]]
    assert run.lose(0) is None
    run.complete(1, item=1)
    assert run.nodes[1].received == [1, 3]
    run.complete(2, item=2)
    assert run.nodes[2].received == [2, 0]


def test_an_item_that_loses_its_second_worker_is_lost() -> None:
    run = begin(["a", "a", "b"], items=3)
    run.lose(0)
    run.complete(1, item=1)
    assert run.nodes[1].received == [1]  # another host could run the lost item
    run.complete(2, item=2)
    assert run.nodes[2].received == [2, 0]
    assert run.lose(2) == "0"


def test_a_lost_item_stays_on_its_host_where_there_is_no_other() -> None:
    run = begin(["a", "a"], items=2)
    run.lose(0)
    run.complete(1, item=1)
    assert run.nodes[1].received == [1, 0]


def test_a_worker_is_told_of_the_attempts_before() -> None:
    run = begin(["a", "b"], items=2)
    run.lose(0)
    run.complete(1, item=1)
    message = ItemRetry(0, 2, "a (gw0) was lost while it ran")
    assert sent_to(run.workers[1]) == [message]


def test_a_worker_without_an_announcement_is_left_out() -> None:
    node = FakeNode()
    worker = WorkerState(Connection(node, RecordingChannel()))
    run = make_run()
    run.add(worker, ["a"])
    assert run.losses == ["gw0 is left out: it did not say what its host has"]
    assert node.shutting_down
    assert not run.scheduler.collection_is_completed


@pytest.mark.parametrize(
    ("ids", "difference"), [(["0", "2"], "1"), (["1", "0"], "the same in another order")]
)
def test_a_worker_that_collects_other_items_is_left_out(ids: list[str], difference: str) -> None:
    run = begin(["a"], items=2)
    late = make_worker("b", "gw1")
    run.add(late, ids)
    assert run.losses == [f"b (gw1) is left out: it collected other items: {difference}"]
    assert late.node.shutting_down


def test_only_items_that_are_known_to_be_quick_are_sent_together() -> None:
    quick = begin(["a", "a"], 36, all_take(36, 0.03))
    assert quick.received() == [[0, 1, 2], [3, 4, 5]]
    slow = begin(["a", "a"], 36, all_take(36, 0.3))
    assert slow.received() == [[0], [1]]
    unknown = begin(["a", "a"], 36)
    assert unknown.received() == [[0], [1]]


def test_slow_items_are_sent_before_quick_ones() -> None:
    seconds = all_take(40, 0.03)
    seconds.update(all_take(4, 0.3))
    run = begin(["a", "a"], 40, seconds)
    assert run.received() == [[0], [1]]


@pytest.mark.parametrize("false", [-1.7e308, math.inf, math.nan])
def test_a_duration_that_no_item_takes_leaves_the_time_of_a_run_a_number(false: float) -> None:
    run = begin(["a", "b"], 36, {"34": false, "35": false})
    for item in (0, 2):
        run.complete(0, item, seconds=false)
    line = summary(run.scheduler.items, run.workers, now=time.monotonic())
    assert re.search(r"about \d[\d.]* (s|min|h) left", line)
    assert math.isfinite(run.workers[0].assigned._average_seconds)


def test_items_that_few_hosts_can_run_go_first() -> None:
    run = make_run({"any": 9})
    table = [make_needs(), make_needs(device="cuda")]
    with_gpu = make_capabilities("a")
    cpu_only = make_capabilities("b")
    cpu_only["devices"] = cpu_only["devices"][:1]
    for capabilities in (with_gpu, cpu_only):
        announcement = WorkerAnnouncement(capabilities, table, [0, 1])
        run.add(make_worker(announcement=announcement), ["any", "gpu"])
    run.scheduler.schedule()
    assert run.received() == [[1], [0]]


def test_a_device_has_one_user_at_a_time() -> None:
    on_gpu = make_needs(device="cuda", exclusive=True)
    run = begin(["a", "a", "b"], items=3, needs=on_gpu)
    assert run.received() == [[0], [], [1]]
    run.complete(0, item=0)
    assert run.received() == [[0, 2], [], [1]]


@pytest.mark.parametrize(("strict", "outcome"), [(False, "skip"), (True, "fail")])
def test_what_no_host_can_run_is_reported_by_one_worker(
    strict: bool, outcome: RefusedOutcome
) -> None:
    needs = make_needs(framework="mxnet")
    run = begin(["a", "b"], items=2, needs=needs, strict=strict)
    first, second = sent_to(run.workers[0])
    assert "has no mxnet" in first.reason
    assert first == ItemRefusal(0, first.reason, outcome)
    assert second == ItemRefusal(1, first.reason, outcome)
    assert run.received() == [[0, 1], []]


def test_what_only_a_lost_host_could_run_is_an_error() -> None:
    run = make_run()
    table = [make_needs(framework="mxnet")]
    able = make_capabilities("a", frameworks={"mxnet": "1.9.1"})
    unable = make_capabilities("b")
    for capabilities in (able, unable):
        announcement = WorkerAnnouncement(capabilities, table, [0])
        run.add(make_worker(announcement=announcement), ["x"])
    run.lose(0)
    run.scheduler.schedule()
    (refusal,) = sent_to(run.workers[1])
    assert refusal.outcome == "error"
    assert refusal.reason.startswith("a is lost, and ")


def test_an_idle_worker_is_given_what_waits_behind_another_item() -> None:
    run = begin(["a", "a"], 16, all_take(16, 0.001))
    one, other = run.nodes
    assert run.received() == [[0, 1, 2, 3], [4, 5, 6]]
    completed = 0
    while completed < len(other.received):
        run.complete(1, other.received[completed], 0.001)
        completed += 1
    assert sorted([*one.received, *other.received]) == list(range(16))
    assert one.asked_back == [[2, 3]]
    run.scheduler.remove_pending_tests_from_node(one, [2, 3])
    assert other.received[-1] == 2
    assert one.asked_back == [[2, 3]]  # there is work again
    run.complete(1, 2, 0.001)
    run.complete(1, 3, 0.001)
    assert one.asked_back[1:] == [[1]]
    run.scheduler.remove_pending_tests_from_node(one, [])  # it had begun it
    assert one.asked_back[1:] == [[1]]


def test_an_item_that_a_full_disk_spoiled_runs_on_another_host_once() -> None:
    run = begin(["a", "a", "b"], items=4)
    one, neighbour, other = run.workers
    assert run.scheduler.retry_elsewhere(one, 0, "No space left on device")
    assert neighbour.disk_full
    run.complete(0, item=0)
    assert run.nodes[0].received == [0]  # its host takes nothing that another one can run
    assert 0 not in one.assigned.sent, "it writes no files of that item any more"
    (loss,) = run.losses
    assert loss.startswith("a (gw0) had a full disk in 0, which is run again elsewhere: No space")
    run.complete(1, item=1)
    run.complete(2, item=2)
    assert run.nodes[2].received == [2, 0]
    assert not run.scheduler.retry_elsewhere(other, 0, "No space left on device")
    assert run.scheduler.items.retries[0].attempt == 2
    run.complete(2, item=0)
    assert run.nodes[2].received == [2, 0, 3]
    run.complete(2, item=3)
    assert run.scheduler.tests_finished


def test_items_without_a_worker_are_abandoned_with_the_losses() -> None:
    run = begin(["a"], items=2)
    run.losses.append("gw0 was lost")
    run.lose(0)
    abandoned = run.scheduler.abandon_items()
    assert sorted(abandoned) == [(0, "gw0 was lost"), (1, "gw0 was lost")]
    assert run.scheduler.tests_finished


def test_nothing_is_abandoned_while_a_worker_is_left() -> None:
    run = begin(["a", "a"], items=4)
    run.lose(0)
    assert run.scheduler.abandon_items() == []


def test_a_crashed_item_that_a_plugin_runs_again_counts_again() -> None:
    run = begin(["a"], items=1)
    run.complete(0, item=0)
    assert run.scheduler.tests_finished
    run.scheduler.mark_test_pending("0")
    assert not run.scheduler.tests_finished
    assert run.nodes[0].received == [0, 0]


def test_a_worker_that_is_not_of_the_run_can_not_be_removed() -> None:
    with pytest.raises(KeyError):
        begin(["a"], items=1).scheduler.remove_node(FakeNode())


def test_nothing_is_done_before_the_first_worker_has_collected() -> None:
    scheduler = make_run().scheduler
    scheduler.schedule()
    assert not scheduler.tests_finished
    assert not scheduler.has_pending
    assert scheduler.abandon_items() == []


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
