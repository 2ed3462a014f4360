"""Items of workers that were lost: which run again, and which are given up."""

from __future__ import annotations

from typing import NamedTuple

from pytest_mlms.distribute.notices import Notices
from pytest_mlms.distribute.queue import ItemTable
from pytest_mlms.distribute.workers import WorkerState


class AbandonedItem(NamedTuple):
    """An item that no worker is left for."""

    item: int
    reason: str


def recover_items(worker: WorkerState, items: ItemTable, notices: Notices) -> str | None:
    """Let the items of a lost worker wait again; return the id of the one that is lost for good.

    The item that it ran is run again on another host, once. A second loss makes it an error.
    """
    running = worker.assigned.running
    is_of_manifest = running in worker.assigned.locks
    waiting = []
    for index in worker.assigned.order:
        if index != running and index in worker.assigned.locks:
            waiting.append(index)
    worker.assigned.clear()
    items.put_back(waiting)
    if running is None or not is_of_manifest:
        return None
    return _recover_running(running, worker, items, notices)


def _recover_running(
    index: int, worker: WorkerState, items: ItemTable, notices: Notices
) -> str | None:
    if index in items.with_result:  # only its tear-down is lost
        items.unfinished -= 1
        return None
    if index in items.retries:
        items.unfinished -= 1
        return items.ids[index]
    cause = f"{worker.name} was lost while it ran"
    items.retry_elsewhere(index, worker.host_name, cause)
    nodeid = items.ids[index]
    notices.show(f"{cause} {nodeid}, which is run again elsewhere")
    return None


def abandon_items(items: ItemTable, reason: str) -> list[AbandonedItem]:
    """Take all waiting items out of their queues, count them as done, and return them."""
    abandoned = []
    for queue in items.queues:
        for index in queue.waiting:
            abandoned.append(AbandonedItem(index, reason))
        queue.waiting.clear()
    items.unfinished -= len(abandoned)
    return abandoned
