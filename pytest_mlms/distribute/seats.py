"""The workers as the controller knows them: where they run, what they have been sent, what they hold alone."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from pytest_mlms.distribute.channel import Link
from pytest_mlms.distribute.fit import locks_of, misses
from pytest_mlms.distribute.items import Queue
from pytest_mlms.distribute.needs import Needs
from pytest_mlms.distribute.returns import Receiver

__all__ = ["Seat", "free"]

_QUICK = 0.02  # seconds: an item that takes longer is worth a message of its own
_SLOW_START = 5
_AHEAD = 0.1  # seconds of work that a worker may be sent at once
_MOST = 64


@dataclass(eq=False)
class Seat:
    """A worker: ``sent`` are the items that it has, the first of which it runs; ``ours`` those that
    are cases, with what each holds alone while it is here."""

    node: Any
    remote: bool
    link: Link | None = None
    receiver: Receiver | None = None
    host: dict[str, Any] | None = None
    table: list[Needs] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    ids: list[str] | None = None
    sent: deque[int] = field(default_factory=deque)
    ours: dict[int, frozenset[str]] = field(default_factory=dict)
    done: int = 0
    silent: bool = False
    since: float = 0.0
    excused: float = field(default_factory=time.monotonic)
    _pace: float = _QUICK
    _fits: dict[Queue, bool] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """What a person calls it: the host, and the worker on it."""
        return f"{self.host['host']} ({self.node.gateway.id})" if self.host else str(self.node.gateway.id)

    def silence(self, now: float) -> float:
        """Return the seconds without any word of it; until the first, as imports take long, they count for less."""
        heard = self.link.heard if self.link else None
        return (now - self.excused) / _SLOW_START if heard is None else now - max(heard, self.excused)

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
        """Whether this host lost the items of a queue: its other workers may be about to end as well."""
        return self.host is not None and self.host["host"] == queue.lost_by

    def locks(self, needs: Needs) -> frozenset[str]:
        """Return what an item holds alone while it is here."""
        assert self.host is not None
        return locks_of(needs, self.host)

    def room(self, share: int) -> int:
        """Return how many items to send now, at most ``share``: one at a time, unless they are quick."""
        depth = 1 if self._pace >= _QUICK else max(1, min(_MOST, int(_AHEAD / max(self._pace, 1e-6)), share))
        missing = depth - len(self.ours)
        return missing if missing > depth // 2 or not self.ours else 0

    def paced(self, seconds: float) -> None:
        """Learn from an item that is done."""
        self._pace += (seconds - self._pace) * 0.3


def free(locks: frozenset[str], seat: Seat, seats: list[Seat]) -> bool:
    """Whether no other worker holds any of ``locks``."""
    return not locks or all(
        locks.isdisjoint(held) for other in seats if other is not seat for held in other.ours.values() if held
    )
