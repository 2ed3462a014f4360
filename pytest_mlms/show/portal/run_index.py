"""The index of the runs in a folder of results, so that no page has to read all of them."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import re
import sqlite3
import stat
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO, Any

from pytest_mlms.core.serialization import read_line
from pytest_mlms.keep.results.results_reader import after_teardown
from pytest_mlms.show.portal.index_writer import FileState, forget_run, open_index, read_run

RUN_FOLDER = re.compile(
    r"(?!(?i:latest)\Z)(?=.{1,128}\Z)[A-Za-z0-9][\w+-]*(\.[0-9][\w+-]*)*", re.ASCII
)
"""Names of the folders of runs that the portal shows and takes.

A point is that of a version: ``history.sqlite``, its journals and locks are names of our files.
"""

RESULTS_FILE = "results.jsonl"
PORTAL_FOLDER = ".portal"
"""The folder of what the portal itself writes, beside the runs."""

_STALE_SECONDS = 1.0


class RunIndex:
    """The runs of a folder, brought up to date as they are asked for.

    Its database is in the folder ``.portal`` beside the runs, or a temporary one where that can't
    be written. Each thread reads by a connection of its own.
    """

    def __init__(self, results: Path, longest_line: int) -> None:
        self._results = results
        self.longest_line = longest_line
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._path, self._writer = self._open()
        self._readers = threading.local()
        self._opened = [self._writer]
        self._writing = threading.Lock()
        self._refreshed = 0.0

    def close(self) -> None:
        """Close the database; no thread may use it any more."""
        for connection in self._opened:
            connection.close()
        if self._temporary:
            self._temporary.cleanup()

    def rows(self, query: str, *values: object) -> list[sqlite3.Row]:
        """Return the rows of a query of ours; ``values`` are those of its parameters."""
        return self._reader().execute(query, values).fetchall()

    def refresh(self, wait: bool = False) -> None:
        """Read what is new in the folder, at most once a second unless ``wait`` is true.

        While the index can't be written, as on a full disk, pages have what it has.
        """
        if not wait and time.monotonic() - self._refreshed < _STALE_SECONDS:
            return
        if not self._writing.acquire(blocking=wait):
            return  # another request does it
        try:
            self._refresh()
            self._refreshed = time.monotonic()
        except sqlite3.OperationalError as error:
            logging.getLogger(__name__).warning("%s can't be written: %s", self._path, error)
        finally:
            self._writing.release()

    def read_line(self, run: str, number: int) -> dict[str, Any] | None:
        """Return the line of an item; None where the run has no such line, or not any more."""
        query = "SELECT position, length, teardown FROM item WHERE run = ? AND number = ?"
        found = self.rows(query, run, number)
        if not found:
            return None
        try:
            with self.open_file(run, RESULTS_FILE) as file:
                file.seek(found[0]["position"])
                line = read_line(file.read(found[0]["length"]))
        except OSError:
            return None
        if line is None or found[0]["teardown"] is None:
            return line
        return after_teardown(line, found[0]["teardown"])

    def open_file(self, run: str, path: str) -> IO[bytes]:
        """Open a file of a run by the path that a line of its results has; raises OSError."""
        return open_below(self._results / run, path)

    def _open(self) -> tuple[Path, sqlite3.Connection]:
        folder = self._results / PORTAL_FOLDER
        try:
            folder.mkdir(exist_ok=True)
            path = folder / "index.sqlite"
            return path, open_index(path)
        except (OSError, sqlite3.Error):
            self._temporary = tempfile.TemporaryDirectory(prefix="mlms-portal-")
            path = Path(self._temporary.name, "index.sqlite")
            return path, open_index(path)

    def _reader(self) -> sqlite3.Connection:
        connection: sqlite3.Connection | None = getattr(self._readers, "connection", None)
        if connection is None:
            connection = open_index(self._path)
            self._readers.connection = connection
            self._opened.append(connection)
        return connection

    def _refresh(self) -> None:
        known = {row["name"]: row for row in self._writer.execute("SELECT * FROM run")}
        reading = 1 + max((row["received"] for row in known.values()), default=0)
        present = set()
        for name in self._folders():
            with contextlib.suppress(FileNotFoundError):  # it was removed meanwhile
                self._refresh_run(name, known.get(name), reading)
                present.add(name)
        with self._writer:
            for name in known.keys() - present:
                forget_run(self._writer, name)

    def _folders(self) -> Iterator[str]:
        """Yield the names of the folders of runs; links to others are not followed."""
        try:
            entries = list(self._results.iterdir())
        except FileNotFoundError:  # before the first run
            return
        for entry in entries:
            is_folder = entry.is_dir() and not entry.is_symlink()
            results = entry / RESULTS_FILE
            if is_folder and RUN_FOLDER.fullmatch(entry.name) and results.is_file():
                yield entry.name

    def _refresh_run(self, name: str, known: sqlite3.Row | None, reading: int) -> None:
        status = (self._results / name / RESULTS_FILE).lstat()
        state = FileState(status.st_ino, status.st_mtime_ns, status.st_size)
        if known and state.is_of(known):
            return
        try:
            file = self.open_file(name, RESULTS_FILE)
        except OSError:  # a link, or nothing that we may read
            return
        with file:
            before = known if known and state.continues(known, file) else None
            read_run(self._writer, name, file, state, before, self.longest_line, reading)


def open_below(folder: Path, path: str) -> IO[bytes]:
    """Open a regular file below a folder, which no part of ``path`` leads out of.

    Each part is opened from the one above it and may be no link, so that one that is put there
    meanwhile is not followed either. Raises OSError.
    """
    *folders, name = PurePosixPath(path).parts
    if PurePosixPath(path).is_absolute() or ".." in (*folders, name):
        raise OSError(errno.EACCES, "it is outside of the run", path)
    parent = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        for part in folders:
            above = parent
            parent = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=above)
            os.close(above)
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=parent)
    finally:
        os.close(parent)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a regular file", path)
    return open(descriptor, "rb")
