"""The workers as the controller knows them.

Where they run, what they have been sent, what they hold alone.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pytest_mlms.distribute.messages import Link
from pytest_mlms.distribute.queue import Queue
from pytest_mlms.distribute.remote.result_transfer import ResultReceiver
from pytest_mlms.host.capabilities import Capabilities
from pytest_mlms.host.matching import locks_of, misses
from pytest_mlms.host.requirements import Needs

__all__ = ["WorkerState", "free"]

_SLOW_START = 5
_AHEAD = 0.1  # seconds of work that a worker may be sent at once
_MOST = 64


@dataclass(eq=False)
class WorkerState:
    """A worker.

    ``sent`` are the items that it has, the first of which it runs; ``ours`` those that are cases,
    with what each holds alone while it is here. ``steals`` are the requests, not answered yet, to
    give cases back (None: other tests), and ``refused`` is the last that it didn't grant. ``held``
    is the report of a set-up whose item isn't decided, ``repeats`` an item that is to run again
    elsewhere and why, and ``full`` whether the host's disk was.
    """

    node: Any
    remote: bool
    link: Link | None = None
    receiver: ResultReceiver | None = None
    host: Capabilities | None = None
    table: list[Needs] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    ids: list[str] | None = None
    sent: deque[int] = field(default_factory=deque)
    ours: dict[int, frozenset[str]] = field(default_factory=dict)
    done: int = 0
    steals: deque[list[int] | None] = field(default_factory=deque)
    refused: list[int] = field(default_factory=list)
    held: list[Any] = field(default_factory=list)
    repeats: tuple[int, str] | None = None
    full: bool = False
    silent: bool = False
    since: float = 0.0
    excused: float = field(default_factory=time.monotonic)
    _batch: int = 0
    _pace: float = _AHEAD
    _fits: dict[Queue, bool] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """What a person calls it: the host, and the worker on it."""
        return f"{self.where} ({self.node.gateway.id})" if self.host else str(self.node.gateway.id)

    @property
    def where(self) -> str:
        """The name of its host, "?" until it has said it."""
        return self.host["host"] if self.host else "?"

    def silence(self, now: float) -> float:
        """Return the seconds without any word of it.

        Until the first, as imports take long, they count for less.
        """
        heard = self.link.heard if self.link else None
        return (
            (now - self.excused) / _SLOW_START if heard is None else now - max(heard, self.excused)
        )

    def excuse(self, now: float) -> None:
        """Begin to count anew, after it could not be heard."""
        self.excused = now

    @property
    def ready(self) -> bool:
        """Whether it has collected, and may be sent items."""
        return self.ids is not None and not self.node.shutting_down

    def fits(self, queue: Queue) -> bool:
        """Whether this host can run the items of a queue."""
        if queue not in self._fits:
            assert self.host is not None
            self._fits[queue] = not misses(queue.needs, self.host)
        return self._fits[queue]

    def lost(self, queue: Queue) -> bool:
        """Whether this host lost the items of a queue, or any to its full disk.

        Its other workers would, too.
        """
        return self.full or self.where == queue.lost_by

    def locks(self, needs: Needs) -> frozenset[str]:
        """Return what an item holds alone while it is here."""
        assert self.host is not None
        return locks_of(needs, self.host)

    @property
    def hungry(self) -> bool:
        """Whether it may be sent more: most of what it was sent last is done."""
        return self.ready and len(self.ours) <= self._batch // 2

    def take(self, queue: Queue, length: Callable[[int], float], most: int) -> list[int]:
        """Take from a queue what to send next: one item, unless they are quick, as their ``length``
        in seconds says.

        One that nobody knows, of length infinity, is expected to take what the last ones here have
        taken.
        """
        batch: list[int] = []
        seconds = 0.0
        while queue.waiting and len(batch) < min(most, _MOST):
            expected = length(queue.waiting[0])
            seconds += self._pace if math.isinf(expected) else expected
            if batch and seconds > _AHEAD:
                break
            batch.append(queue.waiting.popleft())
        self._batch = len(batch)
        return batch

    def paced(self, seconds: float) -> None:
        """Learn from an item that is done."""
        self._pace += (seconds - self._pace) * 0.3


def free(locks: frozenset[str], seat: WorkerState, seats: list[WorkerState]) -> bool:
    """Whether no other worker holds any of ``locks``."""
    return not locks or all(
        locks.isdisjoint(held)
        for other in seats
        if other is not seat
        for held in other.ours.values()
        if held
    )
