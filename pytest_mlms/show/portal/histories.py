"""The history that pages and the REST interface read, and that pushed runs are added to."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from sqlalchemy import Connection, Engine, func, select
from starlette.exceptions import HTTPException

from pytest_mlms.keep.history import queries, schema
from pytest_mlms.keep.history.adding import add_run
from pytest_mlms.keep.history.catching_up import catch_up, queue_of
from pytest_mlms.keep.history.errors import HistoryError, HistoryUnavailable
from pytest_mlms.keep.history.store import open_history, open_to_read
from pytest_mlms.show.pages.series import SeriesView, read_series
from pytest_mlms.show.portal.catalog import Page

T = TypeVar("T")


@dataclass(frozen=True)
class ChangeRow:
    """A change: the level after it over the one before, and what is known of it."""

    id: int
    series: int
    name: str
    first_run: str
    ratio: float
    low: float | None
    high: float | None
    cause: str | None
    status: str
    reason: str | None


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

    def series(self, limit: int, offset: int, contains: str = "") -> Page[queries.SeriesInfo]:
        """Return series in the order of their names, those whose name has a text."""
        with self._connect() as connection:
            names = queries.series_names(connection)
            wanted = [number for number, name in names.items() if contains in name]
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

    def changes(self, limit: int, offset: int, series: int | None = None) -> Page[ChangeRow]:
        """Return changes, the newest first, of one series where it is given."""
        change = schema.change.c
        names = [name for name in ChangeRow.__dataclass_fields__ if name != "name"]
        columns = [change[name] for name in names]
        query = select(*columns, schema.series.c.name).join_from(schema.change, schema.series)
        count = select(func.count()).select_from(schema.change)
        if series is not None:
            query = query.where(change.series == series)
            count = count.where(change.series == series)
        query = query.order_by(change.first_run.desc(), change.id.desc())
        with self._connect() as connection:
            total = connection.scalar(count) or 0
            rows = connection.execute(query.limit(limit).offset(offset)).all()
        return Page(tuple(ChangeRow(**row._mapping) for row in rows), total, offset, limit)

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
