"""The items of a run: their needs, which of them wait, and which are done."""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from pytest_mlms.provide.host.matching import Needs

_LONGEST = 1e9  # seconds of an item


class Retry(NamedTuple):
    """A further attempt at an item; ``earlier`` says what became of the attempts before."""

    attempt: int
    earlier: str


@dataclass(eq=False)
class ItemQueue:
    """Waiting items that the same hosts can run, the longest first.

    ``needs`` are the needs of one of them. ``lost_by`` is the host that lost them, if any.
    """

    needs: Needs
    waiting: deque[int] = field(default_factory=deque)
    lost_by: str = ""


class ItemTable:
    """The collected items, by their index.

    Items of manifests wait in ``queues``. ``other_items`` are the remaining tests of the session in
    the order of collection; xdist's scheduler has those.

    ``rows`` has for each item its index in ``needs``, or -1. ``seconds`` are the durations of
    items in earlier runs, by node id.
    """

    def __init__(
        self,
        ids: Sequence[str],
        needs: Sequence[Needs],
        rows: Sequence[int],
        seconds: Mapping[str, float],
    ) -> None:
        self.ids = ids
        self.other_items: list[int] = []
        self.retries: dict[int, Retry] = {}
        self.with_result: set[int] = set()
        self.unfinished = 0
        self._needs = needs
        self._rows = rows
        self._seconds = {nodeid: plausible(one) for nodeid, one in seconds.items()}
        self._of_outputs = _by_outputs(needs, rows)
        self._queue_of_row = _queues_by_row(needs)
        self.queues = list(dict.fromkeys(self._queue_of_row))
        of_manifests = []
        for index in range(len(ids)):
            if self.is_of_manifest(index):
                of_manifests.append(index)
            else:
                self.other_items.append(index)
        self.unfinished = len(of_manifests)
        for index in self._in_order(of_manifests):
            queue = self.queue_of(index)
            queue.waiting.append(index)

    @classmethod
    def empty(cls) -> ItemTable:
        """Return a table without items, as before any worker has collected."""
        return cls([], [], [], {})

    def needs(self, index: int) -> Needs:
        """Return the needs of an item of a manifest."""
        row = self._rows[index]
        return self._needs[row]

    def is_of_manifest(self, index: int) -> bool:
        """Return whether an item is a case of a manifest."""
        return self._rows[index] >= 0

    def queue_of(self, index: int) -> ItemQueue:
        """Return the queue of the items that the same hosts can run."""
        row = self._rows[index]
        return self._queue_of_row[row]

    def sharing_with(self, index: int) -> list[int]:
        """Return the other items that need the same outputs as an item."""
        outputs = self.needs(index).get("outputs")
        if not outputs:
            return []
        return [other for other in self._of_outputs[outputs] if other != index]

    def expected_seconds(self, index: int) -> float:
        """Return how long an item took the last time, or infinity where that is unknown.

        So items of unknown duration start first.
        """
        nodeid = self.ids[index]
        return self._seconds.get(nodeid, math.inf)

    @property
    def known_seconds(self) -> list[float]:
        """The durations of items in this run and in earlier ones."""
        return list(self._seconds.values())

    @property
    def waiting(self) -> int:
        """The number of items of manifests that no worker has."""
        return sum(len(queue.waiting) for queue in self.queues)

    def finish(self, index: int, seconds: float) -> None:
        """Count an item as done, and remember its duration."""
        self.unfinished -= 1
        nodeid = self.ids[index]
        self._seconds[nodeid] = seconds

    def put_back(self, indices: Iterable[int]) -> None:
        """Let items wait again, at the head of their queues."""
        for index in reversed(list(indices)):
            queue = self.queue_of(index)
            queue.waiting.appendleft(index)

    def retry_elsewhere(self, index: int, lost_by: str, reason: str) -> None:
        """Let an item wait again, in a queue of its own.

        Other hosts than ``lost_by``, which lost it, are preferred.
        """
        self.retries[index] = Retry(2, reason)
        waiting = deque([index])
        queue = ItemQueue(self.needs(index), waiting, lost_by)
        self.queues.insert(0, queue)

    def _in_order(self, indices: list[int]) -> list[int]:
        """Return items in the order in which they start: by visit, then the longest first."""
        has_visits = any(needs["visit"] for needs in self._needs)
        if not self._seconds and not has_visits:
            return indices
        return sorted(
            indices,
            key=lambda index: (self.needs(index)["visit"], -self.expected_seconds(index)),
        )


def plausible(seconds: float) -> float:
    """Return a duration that a host or a history tells, as a number that adds up."""
    return min(max(0.0, seconds), _LONGEST)  # in this order, which makes NaN 0


def _queues_by_row(table: Sequence[Needs]) -> list[ItemQueue]:
    """Return the queue of each entry of the table of needs; equal needs share a queue."""
    by_key: dict[str, ItemQueue] = {}
    queues = []
    for needs in table:
        key = _host_key(needs)
        if key not in by_key:
            by_key[key] = ItemQueue(needs)
        queues.append(by_key[key])
    return queues


def _by_outputs(needs: Sequence[Needs], rows: Sequence[int]) -> dict[str, list[int]]:
    """Return the items that share outputs, by what their needs call them."""
    found: dict[str, list[int]] = {}
    for index, row in enumerate(rows):
        outputs = needs[row].get("outputs") if row >= 0 else None
        if outputs:
            found.setdefault(outputs, []).append(index)
    return found


def _host_key(needs: Needs) -> str:
    """Return a text that is equal for needs that the same hosts meet."""
    key = [
        needs["framework"],
        needs["device"],
        needs["exclusive"],
        needs["here"],
        needs["hardware"],
        needs["labels"],
        needs["model"]["framework"],
        needs["stack"]["cores"],
    ]
    return json.dumps(key, sort_keys=True)
