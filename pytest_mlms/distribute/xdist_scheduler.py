"""Tests that are no items of manifests, delegated to the scheduler that xdist made."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

from pytest_mlms.distribute.queue import ItemTable
from pytest_mlms.distribute.workers import StealRequest, WorkerState


class _DelegatedWorker:
    """A worker as xdist's scheduler sees it: its indices count the other tests only."""

    def __init__(self, worker: WorkerState, items: ItemTable) -> None:
        self.gateway = worker.node.gateway
        self._worker = worker
        self._node = worker.node
        self._items = items

    @property
    def shutting_down(self) -> bool:
        return bool(self._node.shutting_down)

    def send_runtest_some(self, indices: Sequence[int]) -> None:
        in_session = self._in_session(indices)
        self._worker.assigned.add(in_session)
        self._node.send_runtest_some(in_session)

    def send_steal(self, indices: Sequence[int]) -> None:
        requests = self._worker.assigned.steal_requests
        requests.append(StealRequest(None))
        in_session = self._in_session(indices)
        self._node.send_steal(in_session)

    def shutdown(self) -> None:
        """Send the sentinel item, as xdist's workers start a test only when another one follows.

        The worker stays, because it may still be sent items of manifests.
        """
        sentinel = len(self._items.ids)
        self._node.send_runtest_some([sentinel])

    def _in_session(self, indices: Sequence[int]) -> list[int]:
        """Return the indices among all items of the session."""
        other_items = self._items.other_items
        return [other_items[index] for index in indices]


class DelegatedItems:
    """The other tests of the session, scheduled by ``scheduler`` of xdist or of another plugin.

    It begins when all workers have collected, and sees workers that have no other items.
    """

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        self._has_begun = False
        self._workers: dict[Any, _DelegatedWorker] = {}
        self._positions: dict[int, int] = {}

    @property
    def is_finished(self) -> bool:
        """True if all of these tests are done."""
        if not self._has_begun:
            return False
        return bool(self._scheduler.tests_finished)

    @property
    def has_pending(self) -> bool:
        """True if some of these tests wait that no worker has."""
        if not self._has_begun:
            return False
        return bool(self._scheduler.has_pending)

    def begin(self, items: ItemTable, workers: Sequence[WorkerState]) -> None:
        """Add workers to xdist's scheduler, and schedule.

        Called again whenever workers may have come. Workers that the scheduler left out before are
        added again.
        """
        known = self._scheduler.nodes
        added = [worker for worker in workers if self._workers.get(worker.node) not in known]
        if not added:
            return
        if not self._has_begun:
            self._has_begun = True
            self._scheduler.numnodes = len(added)
            for position, index in enumerate(items.other_items):
                self._positions[index] = position
        ids = [items.ids[index] for index in items.other_items]
        for worker in added:
            delegated = _DelegatedWorker(worker, items)
            self._workers[worker.node] = delegated
            self._scheduler.add_node(delegated)
            self._scheduler.add_node_collection(delegated, ids)
        self._scheduler.schedule()

    def complete(self, node: Any, index: int, seconds: float) -> None:
        """Note that a test has run."""
        worker = self._workers[node]
        position = self._positions[index]
        self._scheduler.mark_test_complete(worker, position, seconds)

    def give_back(self, node: Any, indices: Sequence[int]) -> None:
        """Note that a worker has returned tests, as it was asked to."""
        worker = self._workers[node]
        positions = [self._positions[index] for index in indices]
        self._scheduler.remove_pending_tests_from_node(worker, positions)

    def run_again(self, nodeid: str) -> None:
        """Let a test wait again."""
        self._scheduler.mark_test_pending(nodeid)

    def remove_worker(self, node: Any, running: int | None) -> str | None:
        """Forget a worker that is gone; return the id of the test that it crashed in, if any."""
        worker = self._workers.pop(node, None)
        if worker is None:
            return None
        if worker not in self._scheduler.nodes:
            return None
        first: str | None = self._scheduler.remove_node(worker)
        if first is None:
            return None
        if running in self._positions:
            return first
        # It crashed in an item of a manifest, and this test only waited. Schedulers by scope have
        # put it back themselves, and have no mark_test_pending.
        with contextlib.suppress(NotImplementedError):
            self._scheduler.mark_test_pending(first)
        return None
