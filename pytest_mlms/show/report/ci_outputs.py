"""Outputs for CI of a run: files that options name, and what GitHub and GitLab read.

Only the process that the user started writes them, so xdist's workers repeat nothing.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.files import write_atomically
from pytest_mlms.session import Session
from pytest_mlms.show.pages.item import ItemView
from pytest_mlms.show.pages.run import items_of
from pytest_mlms.show.report.last_results import Result, last_results


@dataclass(frozen=True)
class CiRun:
    """A run that is over: its results, and the folder in which pytest was started.

    ``collection`` has the texts of the manifests that could not be collected.
    """

    session: Session
    results: Sequence[Result]
    folder: Path
    environ: Mapping[str, str]
    collection: Sequence[str] = ()

    @cached_property
    def items(self) -> Sequence[ItemView]:
        """The items, each as it was when it ran last."""
        return items_of(last_results(self.results), self.folder)

    @property
    def is_on_github(self) -> bool:
        """True in a job of GitHub Actions."""
        return self.environ.get("GITHUB_ACTIONS") == "true"

    @property
    def is_on_gitlab(self) -> bool:
        """True in a job of GitLab CI."""
        return bool(self.environ.get("GITLAB_CI"))


def write_documents(run: CiRun) -> list[str]:
    """Write the files that --mlms-bencher-json and --mlms-metrics name; return what failed."""
    from pytest_mlms.show.report.bencher_json import bencher_json
    from pytest_mlms.show.report.openmetrics import openmetrics

    config = run.session.config
    errors = []
    for option, path, document in (
        ("--mlms-bencher-json", config.bencher_json, bencher_json),
        ("--mlms-metrics", config.metrics, openmetrics),
    ):
        if path is not None:
            errors += _write(option, path, document, run.results)
    return errors


def _write(
    option: str,
    path: Path,
    document: Callable[[Sequence[Result]], str],
    results: Sequence[Result],
) -> list[str]:
    try:
        write_atomically(path, document(results))
    except OSError as error:
        return [f"{option}: {path} can't be written: {error.strerror}"]
    return []


def write_step_summary(run: CiRun) -> list[str]:
    """Append the summary to the file that GitHub shows, as far as it has room; return problems."""
    from pytest_mlms.show.report.step_summary import MOST_BYTES, step_summary

    name = run.environ.get("GITHUB_STEP_SUMMARY")
    if not run.is_on_github or not name:
        return []
    path = Path(name)
    try:
        size = path.stat().st_size if path.exists() else 0
        with path.open("a", encoding="utf-8") as file:
            file.write(step_summary(run.items, MOST_BYTES - size))
    except OSError as error:
        return [f"GITHUB_STEP_SUMMARY: {path} can't be written: {error.strerror}"]
    return []


def attach_to_junit(run: CiRun, junit: str | None) -> list[str]:
    """Name artifacts in pytest's JUnit file, which exists by now; return problems."""
    from pytest_mlms.show.report.attachments import attach_artifacts

    if not run.is_on_gitlab or not junit:
        return []
    path = run.folder / os.path.expandvars(os.path.expanduser(junit))
    project = Path(run.environ.get("CI_PROJECT_DIR") or run.folder)
    try:
        attach_artifacts(path, run.results, run.session.run_folder, project)
    except MlmsError as error:
        return [str(error)]
    return []


def print_annotations(run: CiRun) -> None:
    """Print the commands that make annotations, in GitHub Actions only."""
    from pytest_mlms.show.report.github_annotations import github_annotations

    if not run.is_on_github:
        return
    workspace = Path(run.environ.get("GITHUB_WORKSPACE") or run.folder)
    for command in github_annotations(run.items, run.collection, run.folder, workspace):
        print(command)
    sys.stdout.flush()
