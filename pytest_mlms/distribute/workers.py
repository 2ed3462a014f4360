"""The state of a worker, as the controller sees it: its items, its host, and its signs of life."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pytest_mlms.distribute.messages import WorkerAnnouncement
from pytest_mlms.distribute.queue import ItemQueue, ItemTable
from pytest_mlms.distribute.remote.result_transfer import ResultReceiver
from pytest_mlms.distribute.side_channel import SideChannel
from pytest_mlms.provide.host.capabilities import Capabilities
from pytest_mlms.provide.host.matching import locks_of, misses

_SLOW_START = 5
"""Until its first message a worker may be silent for so many times as long, as imports are slow."""
_BATCH_SECONDS = 0.1  # of work that a worker is sent at once
_MOST_ITEMS = 64  # in a batch
_SMOOTHING = 0.3  # weight of the latest duration in the average
_CHECK_SECONDS = 2.0  # between two checks, at most, unless this process was stopped


@dataclass(frozen=True)
class StealRequest:
    """A request, not yet answered, that a worker give items back.

    ``indices`` is None where xdist's scheduler asked for other tests.
    """

    indices: Sequence[int] | None


@dataclass(eq=False)
class AssignedItems:
    """The items of a worker, in the order in which it runs them, and how fast it runs them.

    ``locks`` has the items of manifests only, each with the locks that it holds. ``started`` is the
    monotonic time at which the first item began. ``denied`` are the items of the last request to
    give back that the worker did not grant. ``sent`` are all that it was ever sent.
    """

    order: deque[int] = field(default_factory=deque)
    locks: dict[int, frozenset[str]] = field(default_factory=dict)
    steal_requests: deque[StealRequest] = field(default_factory=deque)
    denied: Sequence[int] = ()
    sent: set[int] = field(default_factory=set)
    started: float = 0.0
    completed: int = 0
    _batch_size: int = 0
    _average_seconds: float = _BATCH_SECONDS

    @property
    def running(self) -> int | None:
        """The item that the worker runs now."""
        return self.order[0] if self.order else None

    @property
    def running_locks(self) -> frozenset[str]:
        """The locks that the running item holds."""
        if not self.order:
            return frozenset()
        running = self.order[0]
        return self.locks.get(running, frozenset())

    @property
    def needs_batch(self) -> bool:
        """True if most of the last batch is complete."""
        half = self._batch_size // 2
        return len(self.locks) <= half

    def add(self, indices: Iterable[int]) -> None:
        """Note that items were sent."""
        if not self.order:
            self.started = time.monotonic()
        added = list(indices)
        self.order.extend(added)
        self.sent.update(added)

    def add_locked(self, indices: Sequence[int], locks: frozenset[str]) -> None:
        """Note that items of manifests were sent, each of which holds ``locks``."""
        self.add(indices)
        for index in indices:
            self.locks[index] = locks

    def complete(self, index: int, seconds: float) -> None:
        """Note that the worker has run an item."""
        self.order.remove(index)
        self.started = time.monotonic()
        if index in self.locks:
            del self.locks[index]
            change = seconds - self._average_seconds
            self._average_seconds += _SMOOTHING * change

    def is_asked_for(self, indices: Collection[int]) -> bool:
        """Return whether the worker was asked for these items, of which it may give none."""
        if not self.steal_requests:
            return False
        asked = self.steal_requests[0].indices
        those = set(indices)
        known = set(self.order).difference(self.locks) if asked is None else set(asked)
        return len(those) == len(indices) and those <= known.intersection(self.order)

    def give_back(self, indices: Iterable[int]) -> None:
        """Note that the worker has returned items without running them."""
        for index in indices:
            self.order.remove(index)
            self.sent.discard(index)
            self.locks.pop(index, None)

    def clear(self) -> None:
        """Forget all items, because the worker is gone."""
        self.order.clear()
        self.locks.clear()

    def take_batch(self, queue: ItemQueue, items: ItemTable, most: int) -> list[int]:
        """Take the next items from a queue: one, or several quick ones of 0.1 s together.

        An item of unknown duration is expected to take the average of the last ones here. The items
        that share outputs with them follow, as these are computed once in a worker.
        """
        batch: list[int] = []
        seconds = 0.0
        limit = min(most, _MOST_ITEMS)
        while queue.waiting and len(batch) < limit:
            expected = items.expected_seconds(queue.waiting[0])
            if math.isinf(expected):
                expected = self._average_seconds
            seconds += expected
            if batch and seconds > _BATCH_SECONDS:
                break
            index = queue.waiting.popleft()
            batch.append(index)
        for index in list(batch):
            for other in items.sharing_with(index):
                if other in queue.waiting:
                    queue.waiting.remove(other)
                    batch.append(other)
        self._batch_size = len(batch)
        return batch


class Connection(NamedTuple):
    """How the controller reaches a worker.

    ``node`` is xdist's WorkerController. ``receiver`` takes the files of a worker that does not
    share ours, and is None for the others.
    """

    node: Any
    channel: SideChannel
    receiver: ResultReceiver | None = None


class PendingRetry(NamedTuple):
    """An item that runs again on another host as soon as it has ended here."""

    item: int
    reason: str


@dataclass(eq=False)
class Liveness:
    """The signs of life of a worker; times are by time.monotonic.

    ``counts_from`` is the earliest time that its silence may be counted from.
    """

    channel: SideChannel
    counts_from: float = field(default_factory=time.monotonic)
    given_up: bool = False

    def silence(self, now: float) -> float:
        """Return the seconds without a message; those before the first one count a fifth."""
        last = self.channel.last_message
        if last is None:
            return (now - self.counts_from) / _SLOW_START
        return now - max(last, self.counts_from)


class WorkerState:
    """A worker: its connection, its signs of life, its host, and the items that it has.

    ``announcement`` is its message about its host and items. ``collected`` says whether its items
    are those of the run, and ``disk_full`` whether the disk of its host is full. ``retry`` is the
    item that another host runs again as soon as it has ended here.
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.liveness = Liveness(connection.channel)
        self.assigned = AssignedItems()
        self.announcement: WorkerAnnouncement | None = None
        self.collected = False
        self.retry: PendingRetry | None = None
        self.disk_full = False
        self._can_run: dict[ItemQueue, bool] = {}

    @property
    def node(self) -> Any:
        """xdist's WorkerController."""
        return self.connection.node

    @property
    def id(self) -> str:
        """xdist's name for the worker, such as gw0."""
        return str(self.node.gateway.id)

    @property
    def host_name(self) -> str:
        """The name of the host, "?" until the worker has announced it."""
        return str(self.announcement.capabilities["host"]) if self.announcement else "?"

    @property
    def name(self) -> str:
        """The name for messages: the host, and the worker on it."""
        return f"{self.host_name} ({self.id})" if self.announcement else self.id

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities of the host. Raises LookupError before the worker has announced it."""
        if self.announcement is None:
            raise LookupError(f"{self.id} has not announced what its host offers")
        return self.announcement.capabilities

    @property
    def is_ready(self) -> bool:
        """True if the worker may be sent items."""
        return self.collected and not self.node.shutting_down

    def can_run(self, queue: ItemQueue) -> bool:
        """Return whether this host can run the items of a queue."""
        if queue not in self._can_run:
            self._can_run[queue] = not misses(queue.needs, self.capabilities)
        return self._can_run[queue]

    def has_lost(self, queue: ItemQueue) -> bool:
        """Return whether this host lost the items of a queue, or its disk is full."""
        return self.disk_full or self.host_name == queue.lost_by

    def locks_for(self, queue: ItemQueue) -> frozenset[str]:
        """Return the locks that an item of a queue holds while it is on this host."""
        return locks_of(queue.needs, self.capabilities)


def are_free(locks: frozenset[str], worker: WorkerState, workers: Iterable[WorkerState]) -> bool:
    """Return whether none of ``workers`` besides ``worker`` holds any of the locks."""
    if not locks:
        return True
    for other in workers:
        if other is worker:
            continue
        for held in other.assigned.locks.values():
            if not locks.isdisjoint(held):
                return False
    return True


class SilenceMonitor:
    """Finds workers without a message for ``limit`` seconds; ``now`` is the monotonic time."""

    def __init__(self, limit: float, now: float) -> None:
        self._limit = limit
        self._last_check = now

    def find_silent(self, workers: Iterable[WorkerState], now: float) -> list[WorkerState]:
        """Return the workers that have become silent since the last check.

        If this process itself was stopped for long, no worker could be heard, and the silence of
        all is counted anew.
        """
        was_stopped = now - self._last_check > _CHECK_SECONDS + self._limit / 2
        self._last_check = now
        found = []
        for worker in workers:
            liveness = worker.liveness
            if was_stopped:
                liveness.counts_from = now
            elif not liveness.given_up and liveness.silence(now) > self._limit:
                liveness.given_up = True
                found.append(worker)
        return found
