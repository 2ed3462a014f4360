"""The queue of runs that wait for a history, in a file beside the results.

A run is queued before it is added, and leaves the queue once it was: neither a database that is
away nor a kill costs a result. The file has no secrets of addresses.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import filelock

from pytest_mlms.core.files import write_atomically
from pytest_mlms.keep.results.results_reader import read_results

_NAME = "history-queue.jsonl"
_SECONDS = 30


class Queued(NamedTuple):
    """A run's folder below that of results, and the history that it waits for.

    One that the history has refused is tried again only where a person asks for it.
    """

    folder: str
    history: str
    is_refused: bool = False


class Queue:
    """The queue of a folder of results; ``history`` is an address as messages show it."""

    def __init__(self, results: Path, history: str) -> None:
        self._path = results / _NAME
        self.history = history

    def add(self, folder: str) -> None:
        """Queue a run; raises OSError where that can't be written."""
        self._replace(folder, Queued(folder, self.history))

    def set_aside(self, folder: str) -> None:
        """Note that the history refuses a run; raises OSError where that can't be written."""
        self._replace(folder, Queued(folder, self.history, is_refused=True))

    def remove(self, folder: str) -> None:
        """Take a run from the queue; raises OSError where that can't be written."""
        self._replace(folder, None)

    def folders(self, with_refused: bool = False) -> list[str]:
        """Return the folders of the runs that wait for this history, in their order."""
        entries = [entry for entry in _read(self._path) if entry.history == self.history]
        return [entry.folder for entry in entries if with_refused or not entry.is_refused]

    def others(self) -> list[Queued]:
        """Return the runs that wait for other histories."""
        return [entry for entry in _read(self._path) if entry.history != self.history]

    def _replace(self, folder: str, entry: Queued | None) -> None:
        """Replace the entry of a run, in its place; None removes it."""
        with self._locked():
            entries = _read(self._path)
            by_run = {(old.folder, old.history): old for old in entries}
            if entry is None:
                by_run.pop((folder, self.history), None)
            else:
                by_run[folder, self.history] = entry
            left = list(by_run.values())
            if left != entries:
                self._write(left)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock of the queue; file systems without locks do without."""
        lock = filelock.FileLock(self._path.with_name(f".{_NAME}.lock"), timeout=_SECONDS)
        try:
            lock.acquire()
        except NotImplementedError:
            yield
            return
        except filelock.Timeout as error:
            raise OSError(f"{self._path} is locked by another process") from error
        try:
            yield
        finally:
            lock.release()

    def _write(self, entries: list[Queued]) -> None:
        if not entries:
            self._path.unlink(missing_ok=True)
            return
        lines = [json.dumps(entry._asdict()) for entry in entries]
        write_atomically(self._path, "".join(f"{line}\n" for line in lines))


def queued_folders(results: Path) -> set[str]:
    """Return the folders of runs that wait for any history."""
    return {entry.folder for entry in _read(results / _NAME)}


def _read(path: Path) -> list[Queued]:
    """Return the entries of a queue; lines of something else are left out."""
    entries = []
    for line in read_results(path):
        is_refused = line.get("is_refused") is True
        entries.append(Queued(str(line.get("folder")), str(line.get("history")), is_refused))
    return entries
