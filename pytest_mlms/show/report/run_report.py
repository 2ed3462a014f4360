"""The HTML report of a run at its end; what can't be written or read costs no result."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.show.pages.report import UNREAD, HistoryFigures, write_report
from pytest_mlms.show.pages.run import RunView, read_run

if TYPE_CHECKING:
    from sqlalchemy import Engine


@dataclass(frozen=True)
class ReportOutcome:
    """Notice of a report for the terminal: its place, and what is missing."""

    lines: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def write_run_report(target: Path, folder: Path, history: str | None) -> ReportOutcome:
    """Write the report of a run's folder, with the series of a history if there is one."""
    notes: list[str] = []
    try:
        run = read_run(folder)
        figures, database = _history_figures(history, run, notes)
        lack = UNREAD if history is not None and database is None else ""
        write_report(target, [run], history=figures, database=database, lack=lack)
    except MlmsError as error:
        return ReportOutcome(
            notes=(*notes, f"{error}; try: mlms report {shlex.quote(str(folder))}")
        )
    return ReportOutcome((f"report in {target}",), tuple(notes))


def _history_figures(
    history: str | None, run: RunView, notes: list[str]
) -> tuple[HistoryFigures, Engine | None]:
    """Return the series of the run's items, and the history.

    Adds a note where the history can't be read, and returns none of it.
    """
    if history is None:
        return (), None
    from pytest_mlms.keep.history.store import open_to_read
    from pytest_mlms.show.pages.series import history_figures

    try:
        return history_figures(history, [run]), open_to_read(history)
    except MlmsError as error:
        notes.append(f"the report is without series: {error}")
        return (), None
