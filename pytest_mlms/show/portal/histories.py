"""The history that pages and the REST interface read, and that pushed runs are added to."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, select
from starlette.exceptions import HTTPException

from pytest_mlms.keep.history import queries, schema
from pytest_mlms.keep.history.adding import add_run
from pytest_mlms.keep.history.catching_up import catch_up, queue_of
from pytest_mlms.keep.history.changes import newest_changes
from pytest_mlms.keep.history.errors import HistoryError, HistoryUnavailable
from pytest_mlms.keep.history.store import open_history, open_to_read
from pytest_mlms.show.pages.series import (
    ChangeView,
    SeriesView,
    change_view,
    moved_with,
    read_series,
)
from pytest_mlms.show.pages.sparkline import MOST_RUNS
from pytest_mlms.show.pages.trends import main_series, quantities_of
from pytest_mlms.show.portal.catalog import Page

T = TypeVar("T")


class Histories:
    """Reads a history, which may come into being while the portal runs."""

    def __init__(self, address: str | None) -> None:
        self._address = address
        self._engine: Engine | None = None
        self._lock = threading.Lock()

    @property
    def is_there(self) -> bool:
        """True if the portal was given a history."""
        return self._address is not None

    def engine(self) -> Engine:
        """Return the history itself; raises HTTPException without one, and HistoryError."""
        return self._opened()

    def series(
        self, limit: int, offset: int, contains: str | Sequence[str] = ""
    ) -> Page[queries.SeriesInfo]:
        """Return series in the order of their names, those whose name has a text, or words."""
        words = [contains] if isinstance(contains, str) else contains
        words = [word.casefold() for word in words]
        with self._connect() as connection:
            names = queries.series_names(connection)
            wanted = [number for number, name in names.items() if has_words(name, words)]
            rows = queries.series_by_id(connection, wanted[offset : offset + limit])
        return Page(tuple(rows), len(wanted), offset, limit)

    def one_series(self, number: int) -> queries.SeriesInfo:
        """Return a series; raises HTTPException where there is none."""
        with self._connect() as connection:
            found = queries.series_by_id(connection, [number])
        return _only(found)

    def series_view(self, number: int, last: int) -> SeriesView:
        """Return a series with its newest points and their changes, as ``one_series`` does."""
        found = read_series(self._opened(), [number], last)
        return _only(found)

    def points(self, number: int, last: int) -> Sequence[queries.PointRow]:
        """Return the newest points of a series, the newest last."""
        with self._connect() as connection:
            return queries.points(connection, number, last)

    def series_rows(self, limit: int, offset: int, contains: str = "") -> Page[SeriesView]:
        """Return the series that ``series`` returns, with their newest points and changes."""
        page = self.series(limit, offset, contains)
        views = read_series(self._opened(), [row.id for row in page.rows], MOST_RUNS)
        return Page(tuple(views), page.total, offset, limit)

    def of_item(self, line: Mapping[str, Any] | None) -> SeriesView | None:
        """Return the series that says most of an item; None also where no history can be read."""
        if not self.is_there:
            return None
        with contextlib.suppress(HistoryError):
            return main_series(self._opened(), {"": quantities_of(line)}).get("")
        return None

    def changes(self, limit: int, offset: int, series: int | None = None) -> Page[ChangeView]:
        """Return changes, the newest first, of one series where it is given."""
        wanted = None if series is None else [series]
        with self._connect() as connection:
            found, total = newest_changes(connection, limit, offset, wanted)
        return Page(tuple(map(change_view, found)), total, offset, limit)

    def moved(self, changes: Sequence[ChangeView]) -> Mapping[int, str]:
        """Return what differs between the runs before and after changes, by their ids."""
        with self._connect() as connection:
            return {change.id: moved_with(connection, change) for change in changes}

    def confirmations(self, runs: Sequence[str]) -> Mapping[str, str]:
        """Return the models whose changes these runs of the gate were about, by run.

        None where there is no history, or one that can't be read now.
        """
        try:
            return self._confirmations(runs) if self.is_there else {}
        except HistoryError:
            return {}

    def _confirmations(self, runs: Sequence[str]) -> Mapping[str, str]:
        of = schema.change.c
        query = select(of.confirmed_by, schema.series.c.parts).distinct()
        query = query.join_from(schema.change, schema.series).where(of.confirmed_by.in_(runs))
        models: dict[str, set[str]] = defaultdict(set)
        with self._connect() as connection:
            for run, parts in connection.execute(query):
                models[run].add(str(parts["manifest"]))
        return {run: ", ".join(sorted(found)) for run, found in models.items()}

    def close(self) -> None:
        """Close the connections."""
        if self._engine is not None:
            self._engine.dispose()

    @contextmanager
    def _connect(self) -> Iterator[Connection]:
        """Yield a connection; raises HTTPException without a history, and HistoryError."""
        with self._opened().connect() as connection:
            yield connection

    def _opened(self) -> Engine:
        if self._address is None:
            raise HTTPException(404, "this portal has no history; start it with --history")
        with self._lock:
            if self._engine is None:
                self._engine = open_to_read(self._address)
            return self._engine


def has_words(text: str, words: Sequence[str]) -> bool:
    """Return whether a text has all of these words, which are in lower case."""
    folded = text.casefold()
    return all(word in folded for word in words)


def _only(found: Sequence[T]) -> T:
    if not found:
        raise HTTPException(404, "there is no such series")
    return found[0]


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
