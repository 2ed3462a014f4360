"""Progress of a distributed run, as a line for the terminal or a log."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

from pytest_mlms.distribute.queue import ItemTable
from pytest_mlms.distribute.workers import WorkerState

_SECONDS_ON_TERMINAL = 30.0
_SECONDS_IN_LOG = 120.0
_MOST_SHOWN = 4  # running items


class Progress:
    """Decides when a line is due: every 30 s on a terminal, every 2 minutes in a log."""

    def __init__(self, now: float) -> None:
        self._last = now

    def is_due(self, now: float, on_terminal: bool) -> bool:
        """Return whether it is time for a line; ``now`` is in seconds."""
        interval = _SECONDS_IN_LOG
        if on_terminal:
            interval = _SECONDS_ON_TERMINAL
        if now - self._last < interval:
            return False
        self._last = now
        return True


def summary(items: ItemTable, workers: Iterable[WorkerState], now: float) -> str:
    """Return the line: the items done on each host, those running, and the time left."""
    workers = list(workers)
    busy = [worker for worker in workers if _is_busy(worker)]
    parts = [_done(items, workers)]
    for worker in busy[:_MOST_SHOWN]:
        parts.append(_running(worker, items, now))
    not_shown = len(busy) - _MOST_SHOWN
    if not_shown > 0:
        parts.append(f"{not_shown} more running")
    remaining = remaining_seconds(items, busy, now)
    if remaining is not None:
        duration = _readable(remaining)
        parts.append(f"about {duration} left")
    return "; ".join(parts)


def remaining_seconds(items: ItemTable, busy: Sequence[WorkerState], now: float) -> float | None:
    """Return the seconds until the end if as many items run at once as now, None if unknown.

    An item is expected to take its earlier duration, and a new one the mean of all.
    """
    known = items.known_seconds
    if not known or not busy:
        return None
    mean = sum(known) / len(known)

    def expected(index: int) -> float:
        seconds = items.expected_seconds(index)
        if math.isinf(seconds):
            return mean
        return seconds

    total = 0.0
    for queue in items.queues:
        total += sum(map(expected, queue.waiting))
    for worker in busy:
        running, *waiting = worker.assigned.locks
        elapsed = now - worker.assigned.started
        left = expected(running) - elapsed
        total += max(0.0, left)
        total += sum(map(expected, waiting))
    return total / len(busy)


def _is_busy(worker: WorkerState) -> bool:
    has_items = bool(worker.assigned.locks)
    return has_items and not worker.node.shutting_down


def _done(items: ItemTable, workers: Iterable[WorkerState]) -> str:
    total = len(items.ids) - len(items.other_items)
    done = total - items.unfinished
    by_host: Counter[str] = Counter()
    for worker in workers:
        by_host[worker.host_name] += worker.assigned.completed
    hosts = []
    for host, count in by_host.most_common():
        if count:
            hosts.append(f"{host} {count}")
    text = f"{done} of {total} done"
    if hosts:
        counts = ", ".join(hosts)
        text += f" ({counts})"
    return text


def _running(worker: WorkerState, items: ItemTable, now: float) -> str:
    first = worker.assigned.order[0]
    seconds = now - worker.assigned.started
    nodeid = items.ids[first]
    return f"{nodeid} on {worker.name} for {seconds:.0f} s"


def _readable(seconds: float) -> str:
    if seconds < 90:
        whole = max(1, round(seconds))
        return f"{whole} s"
    minutes = seconds / 60
    if minutes < 90:
        return f"{minutes:.0f} min"
    hours = minutes / 60
    return f"{hours:.1f} h"
