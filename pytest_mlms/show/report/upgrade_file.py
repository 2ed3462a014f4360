"""The file with the reports of regressed upgrades; what can't be written costs no result."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.files import write_atomically
from pytest_mlms.show.pages.run import RunView, read_run
from pytest_mlms.show.report.upgrade_report import Evidence, regressed_items, upgrade_report


def write_run_upgrades(target: Path, folder: Path) -> tuple[list[str], list[str]]:
    """Write those of a run at its end; return lines that tell the file, and notes on errors."""
    try:
        run = read_run(folder)
        write_upgrades(target, [run], Evidence())
    except MlmsError as error:
        again = f"mlms report {folder} --upgrade-report"
        return [], [f"{error}; try: {again}"]
    count = len(regressed_items(run.items))
    if count == 0:
        return [f"no upgrade regressed, and {target} says so"], []
    noun = "upgrade" if count == 1 else "upgrades"
    return [f"report of {count:,} regressed {noun} in {target}"], []


def write_upgrades(target: Path, runs: Sequence[RunView], evidence: Evidence) -> None:
    """Write the upgrades of some runs that regressed; raises MlmsError."""
    texts = []
    for run in runs:
        texts.append(upgrade_report(run.items, results_name(run.folder), evidence, run.but))
    try:
        write_atomically(target, "\n---\n\n".join(texts))
    except OSError as error:
        problem = f"{target}: the report can't be written: {error.strerror}"
        raise MlmsError(problem) from None


def results_name(run: Path) -> str:
    """Return a run's folder as commands name it: below the current folder, else in the default."""
    folder = Path(os.path.realpath(run))  # that of the link "latest"
    here = Path(os.path.realpath("."))
    if folder.is_relative_to(here):
        return folder.relative_to(here).as_posix()
    return f"mlms-results/{folder.name}"
