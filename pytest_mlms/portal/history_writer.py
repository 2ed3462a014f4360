"""Runs that were pushed, added to the history."""

from __future__ import annotations

import logging
from pathlib import Path

from pytest_mlms.history.adding import add_run
from pytest_mlms.history.errors import HistoryError
from pytest_mlms.history.store import open_history

__all__ = ["HistoryWriter"]


class HistoryWriter:
    """Adds runs of a folder of results to a history; raises HistoryError where there can be none.

    A run that it refuses, or while the database is away, stays among the results, and is tried
    again when it is pushed again, or by ``mlms history add``.
    """

    def __init__(self, address: str, results: Path) -> None:
        self._history = open_history(address)
        self._results = results

    def add(self, run: str) -> str:
        """Add a run; return why it was not added, or ""."""
        try:
            add_run(self._history, self._results / run)
        except HistoryError as error:
            logging.getLogger(__name__).warning("%s: not added to the history: %s", run, error)
            return str(error).replace(f"{self._results}/", "")
        return ""
