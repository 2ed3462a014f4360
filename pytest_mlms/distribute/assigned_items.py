"""The items that were sent to one worker and are not complete."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from pytest_mlms.distribute.queue import ItemQueue, ItemTable

_BATCH_SECONDS = 0.1  # of work that a worker is sent at once
_MOST_ITEMS = 64  # in a batch
_SMOOTHING = 0.3  # weight of the latest duration in the average


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
            batch += _take_sharing(queue, items, index)
        self._batch_size = len(batch)
        return batch


def _take_sharing(queue: ItemQueue, items: ItemTable, index: int) -> list[int]:
    """Take the items out of a queue that share outputs with an item."""
    taken = []
    for other in items.sharing_with(index):
        if other in queue.waiting:
            queue.waiting.remove(other)
            taken.append(other)
    return taken
