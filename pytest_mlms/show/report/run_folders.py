"""Folders of runs in a folder of results: their lock, their way into a history, their removal.

A run is kept while a session writes to it, while it waits for a history or a portal, and where a
person has named it: by another name of its folder, or by a link beside it. Results are there before
a run is added to a history, so nothing of that fails a run: what can't be added is queued."""

from __future__ import annotations

import contextlib
import re
import shlex
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import filelock
import pytest

from pytest_mlms.config import Config
from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.extras import missing_extra
from pytest_mlms.core.text import redact
from pytest_mlms.core.waits import holder_of

if TYPE_CHECKING:
    from pytest_mlms.keep.history.adding import Added


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
        old = list(_runs(results))[:-keep]
        if old:
            from pytest_mlms.keep.history.queue import queued_folders

            queued = queued_folders(results)
            for run in old:
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


_ADVICE = "'mlms history add' adds what is queued, and so does the next run"

_RETRY = "mend what is wrong, then 'mlms history add' tries again"


@dataclass(frozen=True)
class HistoryOutcome:
    """Lines for the end of a run, and notes of what could not be done."""

    lines: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def check_address(options: Config) -> tuple[str, ...]:
    """Return why the run will be queued for its history, if it will.

    Raises pytest.UsageError for an address that no later time makes right.
    """
    assert options.history is not None
    try:
        from pytest_mlms.keep.history.errors import HistoryError, HistoryUnavailable
        from pytest_mlms.keep.history.store import check_history
    except ImportError as error:
        raise pytest.UsageError(f"--mlms-history: {missing_extra(error) or error}") from None
    try:
        check_history(options.history)
    except HistoryUnavailable as error:
        return (f"history: {error}; the run will be queued",)
    except HistoryError as error:
        raise pytest.UsageError(f"--mlms-history: {error}") from None
    return ()


def add_to_history(address: str, results: Path, folder: Path) -> HistoryOutcome:
    """Add a run's folder, and the runs that are queued, to a history."""
    from pytest_mlms.keep.history.catching_up import catch_up, queue_of

    queue = queue_of(results, address)
    try:
        queue.add(folder.name)
        caught_up = catch_up(queue, results, address)
    except OSError as error:
        words = ["mlms", "history", "add", str(folder), "--history", redact(address)]
        problem = f"history: {results}: the queue can't be written ({error.strerror or error})"
        return HistoryOutcome(notes=(f"{problem}; run: {shlex.join(words)}",))
    notes = [f"history: {problem}" for problem in caught_up.problems]
    if caught_up.refused:
        noun = "run is" if caught_up.refused == 1 else "runs are"
        notes.append(f"history: {caught_up.refused:,} {noun} set aside; {_RETRY}")
    queued = len(queue.folders())
    if queued:
        noun = "run is" if queued == 1 else "runs are"
        notes.append(f"history: {queued:,} {noun} queued; {_ADVICE}")
    lines = []
    if caught_up.added:
        lines.append(f"history: {_sum(caught_up.added)} added to {queue.history}")
    return HistoryOutcome(tuple(lines), tuple(notes))


def _sum(added: list[Added]) -> str:
    points = sum(entry.points for entry in added)
    text = f"{points:,} points" if points != 1 else "1 point"
    if len(added) > 1:
        text += f" of {len(added):,} runs"
    return text
