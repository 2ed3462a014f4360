"""Removal of old runs from a folder of results.

A run is kept while a session writes to it, while it waits for a history or a portal, and where a
person has named it: by another name of its folder, or by a link beside it.
"""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from pytest_mlms.keep.history.queue import queued_folders
from pytest_mlms.show.report.push_queue import is_waiting
from pytest_mlms.show.report.run_lock import RunInUse, RunLock

RUN_NAME = r"\d{8}-\d{6}-[0-9a-f]{6}"
"""The name of a run's folder, as a regular expression: the time it began, and random digits."""

_REMOVED = ".removed-"


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
