"""How far a distributed run is, in a line.

What is done and where, what is running, about how long it will take.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable

from pytest_mlms.distribute.queue import ItemTable
from pytest_mlms.distribute.workers import WorkerState

__all__ = ["Progress", "remaining", "summary"]

_EVERY = 30.0  # seconds, on a terminal
_EVERY_IN_LOG = 120.0
_SHOWN = 4  # running items


class Progress:
    """Says when a line is due, which is never in a run that is over before the first."""

    def __init__(self, on_terminal: bool, now: float) -> None:
        self._every = _EVERY if on_terminal else _EVERY_IN_LOG
        self._next = now + self._every

    def due(self, now: float) -> bool:
        """Whether it is time for a line; the next one is due a while after."""
        if now < self._next:
            return False
        self._next = now + self._every
        return True


def summary(items: ItemTable, seats: Iterable[WorkerState], now: float) -> str:
    """Return the line."""
    seats = list(seats)
    total = len(items.ids) - len(items.others)
    by_host: Counter[str] = Counter()
    for seat in seats:
        if seat.host:
            by_host[seat.host["host"]] += seat.done
    where = ", ".join(f"{host} {count}" for host, count in by_host.most_common() if count)
    busy = [seat for seat in seats if seat.ours and not seat.node.shutting_down]
    running = [
        f"{items.ids[seat.sent[0]]} on {seat.name} for {now - seat.since:.0f} s"
        for seat in busy[:_SHOWN]
    ]
    parts = [f"{total - items.left} of {total} done{f' ({where})' if where else ''}", *running]
    if len(busy) > _SHOWN:
        parts.append(f"{len(busy) - _SHOWN} more running")
    seconds = remaining(items, busy, now)
    return "; ".join([*parts, *([f"about {_words(seconds)} left"] if seconds is not None else [])])


def remaining(items: ItemTable, busy: Iterable[WorkerState], now: float) -> float | None:
    """Return the seconds that are left if as many items run at once as now; None as long as nobody
    can say.

    An item takes what it took earlier, one that is new the mean of those that are known.
    """
    busy = list(busy)
    known = items.known_seconds
    if not known or not busy:
        return None
    mean = sum(known) / len(known)

    def length(index: int) -> float:
        seconds = items.length(index)
        return mean if math.isinf(seconds) else seconds

    left = sum(length(index) for queue in items.queues for index in queue.waiting)
    for seat in busy:
        first, *rest = seat.ours
        left += max(0.0, length(first) - (now - seat.since)) + sum(map(length, rest))
    return left / len(busy)


def _words(seconds: float) -> str:
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
