"""The option --mlms-history: a run is added to a history when it ends.

Results are there already, so nothing here fails a run: what can't be added is queued.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_mlms.config import Config
from pytest_mlms.core.extras import missing_extra
from pytest_mlms.core.text import redact

if TYPE_CHECKING:
    from pytest_mlms.keep.history.adding import Added

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
