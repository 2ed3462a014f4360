"""Runs that were pushed, added to the history."""

from __future__ import annotations

import contextlib
import logging
from pathlib import Path

from pytest_mlms.keep.history.adding import add_run
from pytest_mlms.keep.history.catching_up import catch_up, queue_of
from pytest_mlms.keep.history.errors import HistoryError, HistoryUnavailable
from pytest_mlms.keep.history.store import open_history


class HistoryWriter:
    """Adds runs of a folder of results to a history; raises HistoryError where there can be none.

    While the database is away, runs are queued, and added with the next one. A run that it refuses
    stays among the results; ``mlms history add`` tries it again.
    """

    def __init__(self, address: str, results: Path) -> None:
        self._history = open_history(address)
        self._address = address
        self._results = results
        self._queue = queue_of(results, address)

    def add(self, run: str) -> str:
        """Add a run, and those that are queued; return why it was not added, or ""."""
        try:
            add_run(self._history, self._results / run)
        except HistoryError as error:
            logging.getLogger(__name__).warning("%s: not added to the history: %s", run, error)
            if isinstance(error, HistoryUnavailable):
                with contextlib.suppress(OSError):  # a full disk: the run itself was written
                    self._queue.add(run)
            return str(error).replace(f"{self._results}/", "")
        self._catch_up()
        return ""

    def _catch_up(self) -> None:
        """Add the runs that are queued; those that can't be stay there."""
        try:
            problems = catch_up(self._queue, self._results, self._address).problems
        except OSError as error:
            problems = [f"the queue can't be written: {error.strerror}"]
        for problem in problems:
            logging.getLogger(__name__).warning("history: %s", problem)
