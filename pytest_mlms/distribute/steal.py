"""What waits behind another worker's item, for one that is idle.

Batches are small, but an item may surprise.
"""

from __future__ import annotations

from pytest_mlms.distribute.queue import ItemTable
from pytest_mlms.distribute.workers import WorkerState, free

__all__ = ["ask_for_more"]


def ask_for_more(idle: WorkerState, ready: list[WorkerState], items: ItemTable) -> None:
    """Ask the worker that has most of what an idle one could run, and hasn't begun it, to give back
    half of that.

    It gives back all of it, or nothing where it has begun with some (xdist's "steal"); the same
    isn't asked for twice.
    """
    asks = []
    for other in ready:
        if other is not idle and not other.steals:
            spare = _spare(other, idle, ready, items)
            asked = spare[len(spare) // 2 :]
            if asked and asked != other.refused:
                asks.append((other, asked))
    if asks:
        other, asked = max(asks, key=lambda ask: len(ask[1]))
        other.steals.append(asked)
        other.node.send_steal(asked)


def _spare(
    other: WorkerState, idle: WorkerState, ready: list[WorkerState], items: ItemTable
) -> list[int]:
    """Return what waits in another worker that the idle one could run now."""
    queued = [
        index for index in list(other.sent)[1:] if index in other.ours and index not in items.again
    ]
    running = other.ours.get(other.sent[0], frozenset()) if queued else frozenset()
    rest = [one for one in ready if one is not other]

    def could(index: int) -> bool:
        queue = items.queue_of(index)
        return (
            idle.fits(queue)
            and running.isdisjoint(locks := idle.locks(queue.needs))
            and free(locks, idle, rest)
        )

    return [index for index in queued if could(index)]
