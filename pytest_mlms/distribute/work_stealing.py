"""Work stealing: an idle worker takes items that wait behind an item of another worker.

Batches are short by what earlier runs took, but an item may take longer than expected.
"""

from __future__ import annotations

from collections.abc import Sequence

from pytest_mlms.distribute.assigned_items import StealRequest
from pytest_mlms.distribute.queue import ItemTable
from pytest_mlms.distribute.workers import WorkerState, are_free


def steal_for(idle: WorkerState, workers: Sequence[WorkerState], items: ItemTable) -> None:
    """Ask the worker with most items that ``idle`` could run to give back half of them.

    xdist's "steal" gives back all that was asked for, or nothing where the worker has begun any of
    it. What was denied is not asked for again.
    """
    best: list[int] = []
    victim = idle
    for worker in workers:
        if worker is idle or worker.assigned.steal_requests:
            continue
        stealable = _stealable(worker, idle, workers, items)
        wanted = stealable[len(stealable) // 2 :]
        if wanted == worker.assigned.denied:
            continue
        if len(wanted) > len(best):
            best = wanted
            victim = worker
    if best:
        request = StealRequest(best)
        victim.assigned.steal_requests.append(request)
        victim.node.send_steal(best)


def _stealable(
    victim: WorkerState, idle: WorkerState, workers: Sequence[WorkerState], items: ItemTable
) -> list[int]:
    """Return the items that wait in ``victim`` and that ``idle`` could run now."""
    assigned = victim.assigned
    others = [worker for worker in workers if worker is not victim]
    found = []
    _, *waiting = assigned.order or [0]
    for index in waiting:
        if index not in assigned.locks or index in items.retries:
            continue
        if assigned.running in items.sharing_with(index):
            continue  # the victim has its outputs as soon as that ends
        queue = items.queue_of(index)
        if not idle.can_run(queue):
            continue
        locks = idle.locks_for(queue)
        if locks & assigned.running_locks:
            continue
        if are_free(locks, idle, others):
            found.append(index)
    return found
