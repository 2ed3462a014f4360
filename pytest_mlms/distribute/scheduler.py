"""Which worker gets which item next. xdist's own scheduler keeps the items that are not ours.

A worker starts an item only when another is queued behind it, so behind each there is a pause (see
worker.py), and nothing is promised before it starts. Whoever becomes idle takes what waits, or what
waits behind another's long item; a device has one user at a time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from pytest_mlms.distribute.queue import ItemTable, Queue
from pytest_mlms.distribute.steal import ask_for_more
from pytest_mlms.distribute.workers import WorkerState, free
from pytest_mlms.distribute.xdist_scheduler import DelegatedItems
from pytest_mlms.host.capabilities import Capabilities
from pytest_mlms.host.matching import misses, nearest_miss

__all__ = ["FleetScheduler"]


class FleetScheduler:
    """What xdist asks of a scheduler (xdist.scheduler.Scheduling), over the seats that the
    controller keeps.

    ``lost`` says what the run has lost; ``tell`` shows a line to the user; ``coming`` says whether
    more workers are still to come.
    """

    def __init__(
        self,
        inner: Any,
        seats: dict[Any, WorkerState],
        seconds: Mapping[str, float],
        strict: bool,
        lost: list[str],
        tell: Callable[[str], None],
        coming: Callable[[], bool],
    ) -> None:
        self.items: ItemTable | None = None
        self.lost = lost
        self._others = DelegatedItems(inner)
        self._seats = seats
        self._seconds = seconds
        self._strict = strict
        self._tell, self._coming = tell, coming
        self._nodes: list[Any] = []
        self._gone: list[Capabilities] = []
        self._begun = False

    @property
    def nodes(self) -> list[Any]:
        """The workers that live."""
        return list(self._nodes)

    @property
    def collection_is_completed(self) -> bool:
        """Whether there is something to schedule: the first worker that has collected begins."""
        return self.items is not None

    @property
    def tests_finished(self) -> bool:
        """Whether every item has its result."""
        items = self.items
        return items is not None and not items.left and (not items.others or self._others.finished)

    @property
    def has_pending(self) -> bool:
        """Whether items wait that no worker has.

        Not before the first are sent, as xdist announces itself then.
        """
        return bool(self._begun and self.items and self.items.waiting) or self._others.has_pending

    def add_node(self, node: Any) -> None:
        """A worker has started; it will collect now."""
        self._nodes.append(node)

    def add_node_collection(self, node: Any, collection: Sequence[str]) -> None:
        """A worker has collected; one that found other items than the first is of no use."""
        seat = self._seats[node]
        if seat.host is None:
            self.give_up(node, "it did not say what it has")
            return
        if self.items is None:
            self.items = ItemTable(collection, seat.table, seat.places, self._seconds)
        elif list(collection) != list(self.items.ids):
            extra = sorted(set(collection) ^ set(self.items.ids)) or ["the same in another order"]
            self.give_up(node, f"it collected other items: {extra[0]}")
            return
        seat.ids = list(collection)

    def give_up(self, node: Any, why: str) -> None:
        """Go on without a worker, which the user is told of and which costs the exit status."""
        text = f"{self._seats[node].name} is left out: {why}"
        self.lost.append(text)
        self._tell(text)
        self._nodes.remove(node)
        node.shutdown()

    def schedule(self) -> None:
        """Give work to whoever can take some.

        Called after each collection, and when a worker is gone.
        """
        if self.items is None:
            return
        self._begun = True
        ready = self._ready()
        if self.items.others and not self._coming():
            self._others.begin(self.items, ready)
        for seat in ready:
            self._fill(seat)
        if not self._coming():
            self._refuse(ready)

    def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:
        """An item has run, with whatever result."""
        assert self.items is not None
        seat = self._seats[node]
        seat.sent.remove(item_index)
        if not self.items.is_ours(item_index):
            self._others.complete(node, item_index, duration)
            return
        del seat.ours[item_index]
        if seat.repeats and seat.repeats[0] == item_index:
            self._repeat(seat, *seat.repeats)
        else:
            self.items.left -= 1
            self.items.took(item_index, duration)
            seat.done += 1
        seat.paced(duration)
        seat.since = time.monotonic()
        self._fill(seat)
        self._feed_idle()

    def repeat_elsewhere(self, seat: WorkerState, index: int, why: str) -> bool:
        """Run an item that a full disk spoiled on another host once it has ended here.

        False where none can.
        """
        assert self.items is not None
        for other in self._seats.values():
            other.full |= other.where == seat.where
        if index in self.items.again or not self._better(self.items.queue_of(index), self._ready()):
            return False
        seat.repeats = index, why
        return True

    def mark_test_pending(self, item: str) -> None:
        """Another plugin wants a crashed item to run again."""
        assert self.items is not None
        index = self.items.ids.index(item)
        if self.items.is_ours(index):
            self.items.left += 1
            self.items.put_back([index])
            self.schedule()
        else:
            self._others.again(item)

    def remove_pending_tests_from_node(self, node: Any, indices: Sequence[int]) -> None:
        """What a worker was asked to give back, or nothing where it had begun some of that."""
        assert self.items is not None
        seat = self._seats[node]
        for index in indices:
            seat.sent.remove(index)
            seat.ours.pop(index, None)
        asked = seat.steals.popleft()
        if asked is None:
            self._others.unscheduled(node, indices)
            return
        seat.refused = [] if indices else asked
        self.items.put_back(indices)
        self._feed_idle()

    def remove_node(self, node: Any) -> str | None:
        """A worker is gone; return the item that it ran, if that is lost for good (KeyError.

        It wasn't ours).
        """
        if node not in self._nodes:
            raise KeyError(node)
        self._nodes.remove(node)
        seat = self._seats[node]
        if seat.host:
            self._gone.append(seat.host)
        running = seat.sent[0] if seat.sent else None
        crashed = self._others.remove(node, running)
        if self.items is not None and seat.ours:
            crashed = self._take_back(seat, running) or crashed
        return crashed

    def abandon(self) -> Iterable[tuple[int, str]]:
        """Yield the items that no worker is left for, each with the reason; they count as done."""
        if self.items is None or self._coming() or self._ready():
            return
        for queue in self.items.queues:
            while queue.waiting:
                self.items.left -= 1
                yield queue.waiting.popleft(), "; ".join(self.lost) or "no worker is left"

    def _feed_idle(self) -> None:
        for seat in self._ready():
            if not seat.sent:
                self._fill(seat)

    def _ready(self) -> list[WorkerState]:
        return [self._seats[node] for node in self._nodes if self._seats[node].ready]

    def _fill(self, seat: WorkerState) -> None:
        assert self.items is not None
        if not seat.hungry:
            return
        ready = self._ready()
        queue = self._next_queue(seat, ready)
        if queue:
            share = self.items.waiting // (2 * len(ready)) if len(ready) > 1 else self.items.waiting
            self._send(
                seat, seat.take(queue, self.items.length, max(1, share)), seat.locks(queue.needs)
            )
        elif not seat.sent:
            ask_for_more(seat, ready, self.items)

    def _next_queue(self, seat: WorkerState, ready: list[WorkerState]) -> Queue | None:
        """Return where the next item is to come from.

        What fewest hosts can run goes first, then the longest.
        """
        assert self.items is not None
        items = self.items
        able = [
            queue
            for queue in items.queues
            if queue.waiting and seat.fits(queue) and free(seat.locks(queue.needs), seat, ready)
            if not (seat.lost(queue) and self._better(queue, ready))
        ]
        if len(able) < 2:
            return able[0] if able else None
        return min(
            able, key=lambda q: (sum(other.fits(q) for other in ready), -items.length(q.waiting[0]))
        )

    def _better(self, queue: Queue, ready: list[WorkerState]) -> bool:
        """Whether there is, or may come, a worker of a host that didn't lose what is in a queue."""
        return self._coming() or any(other.fits(queue) and not other.lost(queue) for other in ready)

    def _send(self, seat: WorkerState, batch: list[int], locks: frozenset[str]) -> None:
        assert self.items is not None
        for index in batch:
            if seat.link and index in self.items.again:
                seat.link.send("again", index, self.items.again[index])
        if not seat.sent:
            seat.since = time.monotonic()
        seat.sent += batch
        seat.ours.update(dict.fromkeys(batch, locks))
        pause = len(self.items.ids)
        seat.node.send_runtest_some([entry for index in batch for entry in (index, pause)])

    def _refuse(self, ready: list[WorkerState]) -> None:
        """Have a worker report what nobody can run.

        Skipped once, or failed, with the nearest miss.
        """
        assert self.items is not None
        for queue in self.items.queues:
            if ready and queue.waiting and not any(seat.fits(queue) for seat in ready):
                seat = min(ready, key=lambda seat: len(seat.sent))
                hosts = [seat.host for seat in ready if seat.host]
                was_able = [host["host"] for host in self._gone if not misses(queue.needs, host)]
                reason = nearest_miss(queue.needs, hosts)
                mode = "error" if was_able else "fail" if self._strict else "skip"
                if was_able:
                    reason = f"{was_able[-1]} is lost, and {reason}"
                batch = list(queue.waiting)
                queue.waiting.clear()
                for index in batch:
                    if seat.link:
                        seat.link.send("refuse", index, reason, mode)
                self._send(seat, batch, frozenset())

    def _repeat(self, seat: WorkerState, index: int, why: str) -> None:
        assert self.items is not None
        seat.repeats = None
        self.items.run_elsewhere(index, seat.where, f"{seat.name} had a full disk: {why}")
        self.lost.append(
            f"{seat.name} had a full disk in {self.items.ids[index]}, which is run again elsewhere: {why}"
        )
        self._tell(self.lost[-1])

    def _take_back(self, seat: WorkerState, running: int | None) -> str | None:
        """Let what a dead worker had wait again.

        The item that it ran goes elsewhere once, then it is an error.
        """
        assert self.items is not None
        lost, back = None, [index for index in seat.sent if index in seat.ours and index != running]
        if running in seat.ours and running is not None:
            if running in self.items.decided:  # its result is here, only its tear-down isn't
                self.items.left -= 1
            elif running in self.items.again:
                self.items.left -= 1
                lost = self.items.ids[running]
            else:
                self.items.run_elsewhere(running, seat.where, f"{seat.name} was lost while it ran")
                self._tell(
                    f"{seat.name} was lost while it ran {self.items.ids[running]}, which is run again elsewhere"
                )
        seat.sent.clear()
        seat.ours.clear()
        self.items.put_back(back)
        return lost
