"""Queue of the runs that wait to be pushed to a portal: each has a mark in its folder."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

_MARK = ".unpushed"


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
