"""The state of a worker, as the controller sees it."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pytest_mlms.distribute.assigned_items import AssignedItems
from pytest_mlms.distribute.messages import WorkerAnnouncement
from pytest_mlms.distribute.queue import ItemQueue
from pytest_mlms.distribute.remote.result_transfer import ResultReceiver
from pytest_mlms.distribute.side_channel import SideChannel
from pytest_mlms.provide.host.capabilities import Capabilities
from pytest_mlms.provide.host.matching import locks_of, misses

_SLOW_START = 5
"""Until its first message a worker may be silent for so many times as long, as imports are slow."""


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
    """The signs of life of a worker; times are those of time.monotonic.

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
