"""Work stealing: an idle worker takes items that wait behind an item of another worker.

Batches are short by what earlier runs took, but an item may take longer than expected.
"""

from __future__ import annotations

from collections.abc import Sequence

from pytest_mlms.distribute.assigned_items import StealRequest
from pytest_mlms.distribute.queue import ItemTable
from pytest_mlms.distribute.workers import WorkerState, are_free

__all__ = ["steal_for"]


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
        wanted = _second_half(_stealable(worker, idle, workers, items))
        if len(wanted) > len(best) and wanted != worker.assigned.denied:
            best = wanted
            victim = worker
    if best:
        victim.assigned.steal_requests.append(StealRequest(best))
        victim.node.send_steal(best)


def _second_half(indices: list[int]) -> list[int]:
    return indices[len(indices) // 2 :]


def _stealable(
    victim: WorkerState, idle: WorkerState, workers: Sequence[WorkerState], items: ItemTable
) -> list[int]:
    """Return the items that wait in ``victim`` and that ``idle`` could run now."""
    assigned = victim.assigned
    others = [worker for worker in workers if worker is not victim]
    found = []
    for index in list(assigned.order)[1:]:
        if index not in assigned.locks or index in items.retries:
            continue
        queue = items.queue_of(index)
        if not idle.can_run(queue):
            continue
        locks = idle.locks_for(queue)
        if locks.isdisjoint(assigned.running_locks) and are_free(locks, idle, others):
            found.append(index)
    return found
