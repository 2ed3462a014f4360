"""Runs of a queue, added to their history."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from pytest_mlms.keep.history.adding import Added, add_run
from pytest_mlms.keep.history.errors import (
    HistoryError,
    HistoryUnavailable,
    address_of,
    file_of,
    show_address,
)
from pytest_mlms.keep.history.queue import Queue
from pytest_mlms.keep.history.store import open_history


@dataclass
class CaughtUp:
    """Runs that were added, how many were refused, and why others are still queued."""

    added: list[Added] = field(default_factory=list)
    refused: int = 0
    problems: list[str] = field(default_factory=list)


def queue_of(results: Path, address: str) -> Queue:
    """Return the queue of runs in a folder of results that wait for a history."""
    url = address_of(address)
    file = file_of(url)
    return Queue(results, str(file.absolute()) if file else show_address(url))


def catch_up(queue: Queue, results: Path, address: str, with_refused: bool = False) -> CaughtUp:
    """Add the runs of a queue; those that can't be added stay in it.

    One that the history refuses is set aside, and tried again ``with_refused``. A run that was
    removed leaves the queue. Raises OSError where the queue can't be written.
    """
    caught_up = CaughtUp()
    folders = queue.folders(with_refused)
    if not folders:
        return caught_up
    try:
        history = open_history(address)
    except HistoryError as error:
        caught_up.problems.append(str(error))
        return caught_up
    try:
        for folder in folders:
            if (results / folder).is_dir():
                try:
                    caught_up.added.append(add_run(history, results / folder))
                except HistoryUnavailable:
                    raise
                except HistoryError as error:
                    caught_up.problems.append(str(error))
                    caught_up.refused += 1
                    queue.set_aside(folder)
                    continue
            queue.remove(folder)
    except HistoryUnavailable as error:
        caught_up.problems.append(str(error))
    finally:
        history.dispose()
    return caught_up
