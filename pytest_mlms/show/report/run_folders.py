"""Folders of runs in a folder of results: their lock, what waits to be pushed, removal of old ones.

A run is kept while a session writes to it, while it waits for a history or a portal, and where a
person has named it: by another name of its folder, or by a link beside it.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import filelock

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.waits import holder_of
from pytest_mlms.keep.history.queue import queued_folders

_PAGE = 4096  # bytes, the least that a file takes of a disk
_LOCK = ".lock"
_MARK = ".unpushed"
RUN_NAME = r"\d{8}-\d{6}-[0-9a-f]{6}"
"""The name of a run's folder, as a regular expression: the time it began, and random digits."""

_REMOVED = ".removed-"


def check_writable(results: Path) -> None:
    """Make a folder of results and write into it; raises OSError where that can't be."""
    results.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=results) as file:
        file.write(bytes(_PAGE))


class RunInUse(MlmsError):
    """Another session writes to the run."""


class RunLock:
    """A lock on the folder of a run, which the kernel releases when its process ends."""

    def __init__(self, run_folder: Path) -> None:
        self._folder = run_folder
        self._path = run_folder / _LOCK
        self._lock = filelock.FileLock(self._path)

    def acquire(self) -> bool:
        """Return whether the run is ours now: some file systems have no locks.

        Raises RunInUse, which names the process of the session that has it.
        """
        try:
            self._lock.acquire(timeout=0)
        except filelock.Timeout:
            problem = f"{self._folder} is in use by {holder_of(self._path)}"
            raise RunInUse(f"{problem}; wait for it, or end it") from None
        except (OSError, NotImplementedError):
            return False
        return True

    def release(self) -> None:
        """Let other sessions have the run."""
        self._lock.release()


def mark_waiting(run: Path) -> None:
    """Have a run wait; one whose folder can't be written is pushed only once."""
    with contextlib.suppress(OSError):
        (run / _MARK).touch()


def unmark(run: Path) -> None:
    """Note that a run was pushed, or never can be."""
    with contextlib.suppress(OSError):
        (run / _MARK).unlink(missing_ok=True)


def is_waiting(run: Path) -> bool:
    """Return whether a run waits."""
    return (run / _MARK).exists()


def waiting_runs(results: Path) -> Sequence[Path]:
    """Return the runs of a folder that wait, the oldest first."""
    marks = sorted(results.glob(f"*/{_MARK}"))
    return [mark.parent for mark in marks if not mark.parent.is_symlink()]


def remove_old_runs(results: Path, keep: int) -> int:
    """Remove runs but the last ``keep``, and return how many.

    Runs that are in use, queued or named stay, whatever their number. What can't be removed stays,
    too.
    """
    removed = 0
    with contextlib.suppress(OSError):
        queued = queued_folders(results)
        for run in list(_runs(results))[:-keep]:
            if run.name not in queued:
                removed += _remove(run)
        for rest in results.glob(f"{_REMOVED}*"):  # of a session that was killed
            shutil.rmtree(rest, ignore_errors=True)
    return removed


def _runs(results: Path) -> Iterator[Path]:
    """Yield the runs that nobody named, the oldest first.

    A folder without results is not theirs: its first item may not have finished.
    """
    entries = sorted(results.iterdir())
    links = [entry for entry in entries if entry.is_symlink() and entry.name != "latest"]
    linked = {link.resolve() for link in links}
    for entry in entries:
        is_run = re.fullmatch(RUN_NAME, entry.name) and (entry / "results.jsonl").is_file()
        if (
            is_run
            and not is_waiting(entry)
            and not entry.is_symlink()
            and entry.resolve() not in linked
        ):
            yield entry


def _remove(run: Path) -> bool:
    """Remove a run that no session uses, in one step for all who look at the folder."""
    lock = RunLock(run)
    try:
        is_ours = lock.acquire()
    except RunInUse:
        return False
    if not is_ours:
        return False
    moved = run.with_name(f"{_REMOVED}{run.name}")
    try:
        run.rename(moved)
        shutil.rmtree(moved, ignore_errors=True)
    except OSError:
        return False
    finally:
        lock.release()
    return True
