"""Scheduler of the items of manifests: decides which worker runs which item next.

The decision is made in ``FleetScheduler._choose_queue``: among the items that the worker's host can
run, and whose device is free, those that few hosts can run go first, and then the longest. What to
do with the items of a lost worker is in ``lost_items.py``. Other tests of the session are left to
xdist's own scheduler (``xdist_scheduler.py``).

Batches are short by the durations of earlier runs, but an item may take longer than expected: an
idle worker steals the items that wait behind one of another worker.

A worker of xdist starts an item only when another one follows in its queue. So each item is sent
with a sentinel item behind it (see ``worker.py``), and it can still be moved to another worker.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import pytest

from pytest_mlms.distribute.lost_items import AbandonedItem, abandon_items, recover_items
from pytest_mlms.distribute.messages import ItemRefusal, ItemRetry, RefusedOutcome
from pytest_mlms.distribute.notices import Notices
from pytest_mlms.distribute.queue import ItemQueue, ItemTable, plausible
from pytest_mlms.distribute.workers import PendingRetry, StealRequest, WorkerState, are_free
from pytest_mlms.distribute.xdist_scheduler import DelegatedItems
from pytest_mlms.provide.host.capabilities import Capabilities
from pytest_mlms.provide.host.matching import misses, nearest_miss


class RunInfo(NamedTuple):
    """Facts about the run that the scheduler needs.

    ``earlier_seconds`` are the durations of items in earlier runs, by node id. ``strict`` is
    --mlms-strict. ``expects_workers`` returns whether more workers are still to come, so that it is
    too early to say that no host can run an item.
    """

    notices: Notices
    earlier_seconds: Mapping[str, float]
    strict: bool
    expects_workers: Callable[[], bool]


class FleetScheduler:
    """A scheduler for xdist (xdist.scheduler.Scheduling), over the workers of the controller.

    ``items`` is empty until the first worker has collected. ``config`` is there for other plugins,
    which read it from xdist's schedulers.
    """

    def __init__(
        self, workers: Mapping[Any, WorkerState], run: RunInfo, config: pytest.Config | None = None
    ) -> None:
        self.config = config
        self.items = ItemTable.empty()
        self._workers = workers
        self._run = run
        self._other_items = DelegatedItems(None)
        self._nodes: list[Any] = []
        self._lost_hosts: list[Capabilities] = []
        self._has_items = False
        self._has_begun = False

    def delegate_to(self, scheduler: Any) -> None:
        """Leave the tests that are no items of manifests to the scheduler that xdist made."""
        self._other_items = DelegatedItems(scheduler)

    # What xdist calls

    @property
    def nodes(self) -> list[Any]:
        """The workers that live."""
        return list(self._nodes)

    @property
    def collection_is_completed(self) -> bool:
        """True if there is something to schedule, which the first worker's collection begins."""
        return self._has_items

    @property
    def tests_finished(self) -> bool:
        """True if every item has its result."""
        if not self._has_items or self.items.unfinished:
            return False
        return not self.items.other_items or self._other_items.is_finished

    @property
    def has_pending(self) -> bool:
        """True if items wait that no worker has.

        False before the first items are sent, because xdist prints its header then.
        """
        if self._has_begun and self.items.waiting:
            return True
        return self._other_items.has_pending

    def add_node(self, node: Any) -> None:
        """Add a worker that has started and collects now."""
        self._nodes.append(node)

    def add_node_collection(self, node: Any, collection: Sequence[str]) -> None:
        """Take the items that a worker has collected, or leave it out if they are other items."""
        worker = self._workers[node]
        announced = worker.announcement
        if announced is None:
            self._leave_out(worker, "it did not say what its host has")
            return
        if not self._has_items:
            if len(announced.rows) != len(collection):
                self._leave_out(worker, "it did not say what each of its items needs")
                return
            self._has_items = True
            self.items = ItemTable(
                collection, announced.needs, announced.rows, self._run.earlier_seconds
            )
        difference = _difference(collection, self.items.ids)
        if difference:
            self._leave_out(worker, f"it collected other items: {difference}")
        else:
            worker.collected = True

    def schedule(self) -> None:
        """Send items to all workers that can take some.

        Called after each collection, and when a worker has come or gone.
        """
        if not self._has_items:
            return
        self._has_begun = True
        ready = self._ready_workers()
        all_are_here = not self._run.expects_workers()
        if self.items.other_items and all_are_here:
            self._other_items.begin(self.items, ready)
        for worker in ready:
            self._send_next(worker)
        if ready and all_are_here:
            self._refuse_unrunnable(ready)

    def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:
        """Note that an item has run, with whatever result."""
        worker = self._workers[node]
        duration = plausible(duration)
        worker.assigned.complete(item_index, duration)
        if not self.items.is_of_manifest(item_index):
            self._other_items.complete(node, item_index, duration)
            return
        retry = worker.retry
        if retry and retry.item == item_index:
            self._retry_after_full_disk(worker, retry)
        else:
            self.items.finish(item_index, duration)
            worker.assigned.completed += 1
        self._send_next(worker)
        self._feed_idle_workers()

    def mark_test_pending(self, item: str) -> None:
        """Let a crashed item run again, as another plugin wants."""
        index = self.items.ids.index(item)
        if self.items.is_of_manifest(index):
            self.items.unfinished += 1
            self.items.put_back([index])
            self.schedule()
        else:
            self._other_items.run_again(item)

    def remove_pending_tests_from_node(self, node: Any, indices: Sequence[int]) -> None:
        """Take the items that a worker has given back, none where it had begun some of them."""
        assigned = self._workers[node].assigned
        assigned.give_back(indices)
        request = assigned.steal_requests.popleft()
        if request.indices is None:
            self._other_items.give_back(node, indices)
            return
        assigned.denied = () if indices else request.indices
        self.items.put_back(indices)
        self._feed_idle_workers()

    def remove_node(self, node: Any) -> str | None:
        """Forget a worker that is gone; return the id of the item that is lost with it, if any.

        Raises KeyError for a worker that is not of the run.
        """
        if node not in self._nodes:
            raise KeyError(node)
        self._nodes.remove(node)
        worker = self._workers[node]
        if worker.announcement:
            self._lost_hosts.append(worker.capabilities)
        running = worker.assigned.running
        crashed_test = self._other_items.remove_worker(node, running)
        lost_item = None
        if worker.assigned.locks:
            lost_item = recover_items(worker, self.items, self._run.notices)
        return lost_item or crashed_test

    # What the controller calls

    def abandon_items(self) -> list[AbandonedItem]:
        """Give up the items that no worker is left for, and return them."""
        if self._run.expects_workers() or self._ready_workers():
            return []
        reason = "; ".join(self._run.notices.losses)
        if not reason:
            reason = "no worker is left"
        return abandon_items(self.items, reason)

    def retry_elsewhere(self, worker: WorkerState, index: int, reason: str) -> bool:
        """Let an item that a full disk spoiled run on another host, as soon as it has ended here.

        Returns False where no other host can run it, or it was already run again.
        """
        for other in self._workers.values():
            if other.host_name == worker.host_name:
                other.disk_full = True
        if index in self.items.retries:
            return False
        queue = self.items.queue_of(index)
        ready = self._ready_workers()
        if not self._has_better_host(queue, ready):
            return False
        worker.retry = PendingRetry(index, reason)
        return True

    # The choice of items

    def _ready_workers(self) -> list[WorkerState]:
        ready = []
        for node in self._nodes:
            worker = self._workers[node]
            if worker.is_ready:
                ready.append(worker)
        return ready

    def _feed_idle_workers(self) -> None:
        for worker in self._ready_workers():
            if not worker.assigned.order:
                self._send_next(worker)

    def _send_next(self, worker: WorkerState) -> None:
        """Send a worker its next items, if it is time for that."""
        if not (worker.is_ready and worker.assigned.needs_batch):
            return
        ready = self._ready_workers()
        queue = self._choose_queue(worker, ready)
        if queue:
            most = self._fair_share(ready)
            batch = worker.assigned.take_batch(queue, self.items, most)
            self._send(worker, batch, worker.locks_for(queue))
        elif not worker.assigned.order:
            steal_for(worker, ready, self.items)

    def _choose_queue(self, worker: WorkerState, ready: Sequence[WorkerState]) -> ItemQueue | None:
        """Return the queue that the next item of a worker comes from, None where there is none.

        What few hosts can run goes first, then what takes longest.
        """

        def priority(queue: ItemQueue) -> tuple[int, float]:
            able_workers = sum(other.can_run(queue) for other in ready)
            longest = queue.waiting[0]
            seconds = self.items.expected_seconds(longest)
            return able_workers, -seconds

        candidates = []
        for queue in self.items.queues:
            if queue.waiting and self._may_start(queue, worker, ready):
                candidates.append(queue)
        return min(candidates, key=priority, default=None)

    def _may_start(
        self, queue: ItemQueue, worker: WorkerState, ready: Sequence[WorkerState]
    ) -> bool:
        """Return whether a worker may start an item of a queue now."""
        if not worker.can_run(queue):
            return False
        if not are_free(worker.locks_for(queue), worker, ready):
            return False
        if not worker.has_lost(queue):
            return True
        return not self._has_better_host(queue, ready)

    def _has_better_host(self, queue: ItemQueue, ready: Sequence[WorkerState]) -> bool:
        """Return whether a host that did not lose a queue's items can run them, or may come."""
        if self._run.expects_workers():
            return True
        able_workers = [worker for worker in ready if worker.can_run(queue)]
        return any(not worker.has_lost(queue) for worker in able_workers)

    def _fair_share(self, ready: Sequence[WorkerState]) -> int:
        """Return how many items a worker may be sent at most, so that enough is left for others."""
        waiting = self.items.waiting
        count = len(ready)
        if count < 2:
            return waiting
        half_of_share = waiting // (2 * count)
        return max(1, half_of_share)

    def _send(self, worker: WorkerState, batch: Sequence[int], locks: frozenset[str]) -> None:
        """Send items to a worker, each followed by the sentinel item."""
        sentinel = len(self.items.ids)
        entries = []
        for index in batch:
            retry = self.items.retries.get(index)
            if retry:
                message = ItemRetry(index, retry.attempt, retry.earlier)
                worker.connection.channel.send(message)
            entries += [index, sentinel]
        worker.assigned.add_locked(batch, locks)
        worker.node.send_runtest_some(entries)

    # Items that nobody can run, and hosts that can't be used

    def _leave_out(self, worker: WorkerState, reason: str) -> None:
        """Go on without a worker; this is a loss of the run."""
        loss = f"{worker.name} is left out: {reason}"
        self._run.notices.add_loss(loss)
        self._nodes.remove(worker.node)
        worker.node.shutdown()

    def _refuse_unrunnable(self, ready: Sequence[WorkerState]) -> None:
        """Let a worker report the items that no host can run."""
        for queue in self.items.queues:
            is_runnable = any(worker.can_run(queue) for worker in ready)
            if queue.waiting and not is_runnable:
                self._refuse(queue, ready)

    def _refuse(self, queue: ItemQueue, ready: Sequence[WorkerState]) -> None:
        """Let the least busy worker report a queue's items, with the host that comes nearest.

        They are skipped, failed under --mlms-strict, and errors where a lost host could run them.
        """
        hosts = [worker.capabilities for worker in ready]
        reason = nearest_miss(queue.needs, hosts)
        outcome: RefusedOutcome = "fail" if self._run.strict else "skip"
        able_hosts = [host for host in self._lost_hosts if not misses(queue.needs, host)]
        if able_hosts:
            name = able_hosts[-1]["host"]
            reason = f"{name} is lost, and {reason}"
            outcome = "error"
        reporter = min(ready, key=lambda worker: len(worker.assigned.order))
        batch = list(queue.waiting)
        queue.waiting.clear()
        for index in batch:
            refusal = ItemRefusal(index, reason, outcome)
            reporter.connection.channel.send(refusal)
        self._send(reporter, batch, frozenset())

    def _retry_after_full_disk(self, worker: WorkerState, retry: PendingRetry) -> None:
        worker.retry = None
        worker.assigned.sent.discard(retry.item)  # its files are another host's from now on
        cause = f"{worker.name} had a full disk"
        earlier = f"{cause}: {retry.reason}"
        self.items.retry_elsewhere(retry.item, worker.host_name, earlier)
        nodeid = self.items.ids[retry.item]
        loss = f"{cause} in {nodeid}, which is run again elsewhere: {retry.reason}"
        self._run.notices.add_loss(loss)


def _difference(collection: Sequence[str], expected: Sequence[str]) -> str:
    """Return an id that one of two collections lacks, "" where they are the same."""
    if list(collection) == list(expected):
        return ""
    different = set(collection) ^ set(expected)
    if not different:
        return "the same in another order"
    return min(different)


def steal_for(idle: WorkerState, workers: Sequence[WorkerState], items: ItemTable) -> None:
    """Ask the worker with most items that ``idle`` could run to give back half of them.

    xdist's "steal" gives back all that was asked for, or nothing where the worker has begun any of
    it. What was denied is not asked for again.
    """
    best: list[int] = []
    victim = idle
    for worker in workers:
        if worker is idle or worker.assigned.steal_requests:
            continue
        stealable = _stealable(worker, idle, workers, items)
        wanted = stealable[len(stealable) // 2 :]
        if wanted == worker.assigned.denied:
            continue
        if len(wanted) > len(best):
            best = wanted
            victim = worker
    if best:
        request = StealRequest(best)
        victim.assigned.steal_requests.append(request)
        victim.node.send_steal(best)


def _stealable(
    victim: WorkerState, idle: WorkerState, workers: Sequence[WorkerState], items: ItemTable
) -> list[int]:
    """Return the items that wait in ``victim`` and that ``idle`` could run now."""
    assigned = victim.assigned
    others = [worker for worker in workers if worker is not victim]
    found = []
    _, *waiting = assigned.order or [0]
    for index in waiting:
        if index not in assigned.locks or index in items.retries:
            continue
        if assigned.running in items.sharing_with(index):
            continue  # the victim has its outputs as soon as that ends
        queue = items.queue_of(index)
        if not idle.can_run(queue):
            continue
        locks = idle.locks_for(queue)
        if locks & assigned.running_locks:
            continue
        if are_free(locks, idle, others):
            found.append(index)
    return found
