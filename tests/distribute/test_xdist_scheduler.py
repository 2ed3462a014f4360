"""Other tests of the session, delegated to a fake of xdist's scheduler."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from pytest_mlms.distribute.queue import ItemTable
from pytest_mlms.distribute.workers import WorkerState
from pytest_mlms.distribute.xdist_scheduler import DelegatedItems
from tests.distribute.fakes import make_needs, make_ready_worker


class FakeScheduling:
    """xdist's scheduler, which sends all tests to its first worker."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.collection: Sequence[str] = []
        self.events: list[tuple[Any, ...]] = []
        self.tests_finished = False
        self.has_pending = True
        self.running: str | None = None

    def add_node(self, node: Any) -> None:
        self.nodes.append(node)

    def add_node_collection(self, node: Any, collection: Sequence[str]) -> None:
        self.collection = collection

    def schedule(self) -> None:
        self.nodes[0].send_runtest_some(range(len(self.collection)))

    def mark_test_complete(self, node: Any, index: int, seconds: float) -> None:
        self.events.append(("complete", index))

    def mark_test_pending(self, nodeid: str) -> None:
        self.events.append(("pending", nodeid))

    def remove_pending_tests_from_node(self, node: Any, indices: Sequence[int]) -> None:
        self.events.append(("returned", *indices))

    def remove_node(self, node: Any) -> str | None:
        self.nodes.remove(node)
        return self.running


@pytest.fixture
def scheduling() -> FakeScheduling:
    return FakeScheduling()


@pytest.fixture
def worker() -> WorkerState:
    return make_ready_worker()


@pytest.fixture
def delegated(scheduling: FakeScheduling, worker: WorkerState) -> DelegatedItems:
    """Other tests at 1 and 3, after items of a manifest, that were sent to the worker."""
    items = ItemTable(["case", "one", "case", "two"], [make_needs()], [0, -1, 0, -1], {})
    delegated = DelegatedItems(scheduling)
    delegated.begin(items, [worker])
    return delegated


def test_nothing_is_asked_of_xdist_s_scheduler_before_it_begins() -> None:
    delegated = DelegatedItems(None)
    assert not delegated.is_finished
    assert not delegated.has_pending
    assert delegated.remove_worker("gw0", running=None) is None


def test_indices_are_among_all_items_of_the_session(
    scheduling: FakeScheduling, worker: WorkerState, delegated: DelegatedItems
) -> None:
    assert scheduling.collection == ["one", "two"]
    assert list(worker.assigned.order) == [1, 3]
    delegated.complete(worker.node, 3, 0.1)
    delegated.give_back(worker.node, [1])
    assert scheduling.events == [("complete", 1), ("returned", 0)]


def test_stealing_and_the_end_are_translated(
    scheduling: FakeScheduling, worker: WorkerState, delegated: DelegatedItems
) -> None:
    (view,) = scheduling.nodes
    view.send_steal([1])
    assert worker.node.asked_back == [[3]]
    assert worker.assigned.steal_requests[0].indices is None
    view.shutdown()
    assert worker.node.received[-1] == 4  # the sentinel item
    assert not worker.node.shutting_down


def test_a_worker_is_added_once(
    scheduling: FakeScheduling, worker: WorkerState, delegated: DelegatedItems
) -> None:
    items = ItemTable(["case", "one", "case", "two"], [make_needs()], [0, -1, 0, -1], {})
    delegated.begin(items, [worker])
    assert len(scheduling.nodes) == 1
    delegated.begin(items, [worker, make_ready_worker("b", "gw1")])
    assert len(scheduling.nodes) == 2


def test_a_test_that_crashed_its_worker_is_named(
    scheduling: FakeScheduling, worker: WorkerState, delegated: DelegatedItems
) -> None:
    scheduling.running = "one"
    assert delegated.remove_worker(worker.node, running=1) == "one"
    assert scheduling.events == []
    assert scheduling.nodes == []


def test_a_test_that_waited_behind_a_crashed_item_of_a_manifest_waits_again(
    scheduling: FakeScheduling, worker: WorkerState, delegated: DelegatedItems
) -> None:
    scheduling.running = "one"
    assert delegated.remove_worker(worker.node, running=0) is None
    assert scheduling.events == [("pending", "one")]
