"""The items of a run as the controller knows them: what they need, what waits, what is done.

Sends nothing.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pytest_mlms.host.requirements import Needs

__all__ = ["ItemTable", "Queue"]

_WHERE = ("framework", "device", "exclusive", "here", "hardware", "labels")


@dataclass(eq=False)
class Queue:
    """Items that the same hosts can run, the longest first; ``needs`` are those of one of them.

    ``lost_by`` is the host that lost them while it ran them, if any.
    """

    needs: Needs
    waiting: deque[int] = field(default_factory=deque)
    lost_by: str = ""


class ItemTable:
    """Ours among the collected items, by their index.

    ``others`` are the rest, in the order collected.
    """

    def __init__(
        self,
        ids: Sequence[str],
        table: Sequence[Needs],
        places: Sequence[int],
        seconds: Mapping[str, float],
    ) -> None:
        self.ids = ids
        self.others = [index for index, place in enumerate(places) if place < 0]
        self.again: dict[int, dict[str, Any]] = {}
        self.decided: set[int] = set()
        self.left = len(ids) - len(self.others)
        self._table, self._places = table, places
        self._seconds = dict(seconds)
        self._queues: dict[int, Queue] = {}
        self.queues = self._sorted(seconds)

    def needs(self, index: int) -> Needs:
        """Return what an item needs."""
        return self._table[self._places[index]]

    def is_ours(self, index: int) -> bool:
        """Whether an item is a case of a manifest."""
        return self._places[index] >= 0

    def queue_of(self, index: int) -> Queue:
        """Return where an item waits, with all that the same hosts can run."""
        return self._queues[self._places[index]]

    def length(self, index: int) -> float:
        """Return the seconds that the item took earlier.

        Infinity where nobody knows, so that surprises come first.
        """
        return self._seconds.get(self.ids[index], float("inf"))

    @property
    def known_seconds(self) -> list[float]:
        """What items have taken, in this run and in earlier ones."""
        return list(self._seconds.values())

    def took(self, index: int, seconds: float) -> None:
        """Learn what an item has taken."""
        self._seconds[self.ids[index]] = seconds

    @property
    def waiting(self) -> int:
        """How many of ours no worker has."""
        return sum(len(queue.waiting) for queue in self.queues)

    def put_back(self, indices: Iterable[int]) -> None:
        """Have items wait again, before all others of their sort."""
        for index in reversed(list(indices)):
            self.queue_of(index).waiting.appendleft(index)

    def run_elsewhere(self, index: int, lost_by: str, why: str) -> None:
        """Have an item wait again in a queue of its own, for other hosts than that which lost it,
        if there are any.
        """
        self.again[index] = {"attempt": 2, "earlier": why}
        self.queues.insert(0, Queue(self.needs(index), deque([index]), lost_by))

    def _sorted(self, seconds: Mapping[str, float]) -> list[Queue]:
        by_where: dict[str, Queue] = {}
        for place, needs in enumerate(self._table):
            where = {name: needs.get(name) for name in _WHERE}
            where |= {
                "asked": needs["model"]["framework"],
                "cores": needs.get("stack", {}).get("cores"),
            }
            key = json.dumps(where, sort_keys=True)
            self._queues[place] = by_where.setdefault(key, Queue(needs))
        ours = [index for index, place in enumerate(self._places) if place >= 0]
        if seconds or any(needs.get("visit") for needs in self._table):
            ours.sort(key=lambda index: (self.needs(index).get("visit", 0), -self.length(index)))
        for index in ours:
            self.queue_of(index).waiting.append(index)
        return list(by_where.values())
