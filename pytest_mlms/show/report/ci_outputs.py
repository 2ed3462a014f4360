"""Outputs for CI of a run: files that options name, and what GitHub and GitLab read.

Only the process that the user started writes them, so xdist's workers repeat nothing.
"""

from __future__ import annotations

import io
import os
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.files import write_atomically
from pytest_mlms.core.recorded import Recorded, recorded_artifacts
from pytest_mlms.core.text import visible
from pytest_mlms.session import Session
from pytest_mlms.show.pages.item import ItemView
from pytest_mlms.show.pages.run import items_of
from pytest_mlms.show.report.exports import ITEM_PROPERTY, Result, last_results

_NOT_IN_PATHS = "[]|\r\n"
_FIRST = (".png", ".jpg", ".csv")
"""The suffixes that are attached first: GitLab shows one file, best a picture."""

_NOT_SHOWN = ("PASSED", "SKIPPED", "IMPROVED", "XFAILED")


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
    from pytest_mlms.show.report.exports import bencher_json, openmetrics

    config = run.session.config
    errors = []
    for option, path, document in (
        ("--mlms-bencher-json", config.bencher_json, bencher_json),
        ("--mlms-metrics", config.metrics, openmetrics),
    ):
        if path is not None:
            try:
                write_atomically(path, document(run.results))
            except OSError as error:
                errors.append(f"{option}: {path} can't be written: {error.strerror}")
    return errors


def write_step_summary(run: CiRun) -> list[str]:
    """Append the summary to the file that GitHub shows, as far as it has room; return problems."""
    name = run.environ.get("GITHUB_STEP_SUMMARY")
    if not run.is_on_github or not name:
        return []
    from pytest_mlms.show.report.step_summary import MOST_BYTES, step_summary

    path = Path(name)
    try:
        size = path.stat().st_size if path.exists() else 0
        with path.open("a", encoding="utf-8") as file:
            file.write(step_summary(run.items, MOST_BYTES - size, run.collection))
    except OSError as error:
        return [f"GITHUB_STEP_SUMMARY: {path} can't be written: {error.strerror}"]
    return []


def attach_to_junit(run: CiRun, junit: str | None) -> list[str]:
    """Name artifacts in pytest's JUnit file, which exists by now; return problems."""

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
    if not run.is_on_github:
        return
    from pytest_mlms.show.report.github_annotations import github_annotations

    workspace = Path(run.environ.get("GITHUB_WORKSPACE") or run.folder)
    has_summary = os.path.isfile(run.environ.get("GITHUB_STEP_SUMMARY") or "")
    for command in github_annotations(
        run.items, run.collection, run.folder, workspace, has_summary
    ):
        print(command)
    sys.stdout.flush()


def attach_artifacts(
    path: Path, results: Iterable[Result], run_folder: Path, project: Path
) -> None:
    """Add the artifacts of items that did not pass to their test cases in a JUnit file.

    A line ``[[ATTACHMENT|path]]`` of a test case's ``system-out`` names a file, for GitLab, Jenkins
    and Azure. GitLab shows the first one of a test case that failed, by a path below CI_PROJECT_DIR
    that the job keeps as an artifact.

    Files outside of ``project`` are left out. Raises MlmsError where the file can't be changed.
    """
    attachments = {}
    for item in last_results(results):
        if item["verdict"] not in _NOT_SHOWN:
            attachments[visible(item["nodeid"])] = _paths(item, run_folder, project)
    try:
        tree = ElementTree.parse(path)
        changed = False
        for case in tree.iter("testcase"):
            lines = [f"[[ATTACHMENT|{path}]]" for path in attachments.get(_item_of(case), ())]
            if lines:
                # In front of the case's output: GitLab's parser can't read two elements of it.
                output = case.find("system-out")
                if output is None:
                    output = ElementTree.SubElement(case, "system-out")
                output.text = "\n".join([*lines, output.text or ""])
                changed = True
        if changed:
            text = io.BytesIO()
            tree.write(text, encoding="utf-8", xml_declaration=True)
            write_atomically(path, text.getvalue())
    except (OSError, ElementTree.ParseError) as error:
        raise MlmsError(f"{path}: no attachments could be added: {error}") from error


def _paths(item: Result, run_folder: Path, project: Path) -> list[str]:
    """Return the item's files below the project, pictures first."""
    found = []
    logs = map(Recorded, item.get("logs", ()))
    for recorded in (*recorded_artifacts(item).values(), *logs):
        file = recorded.file_below(run_folder)
        if file is None:
            continue
        path = os.path.relpath(file, project)
        is_outside = path.startswith(os.pardir)
        if not is_outside and not set(path) & set(_NOT_IN_PATHS):
            found.append(path)
    ranks = {suffix: rank for rank, suffix in enumerate(_FIRST)}
    return sorted(found, key=lambda path: ranks.get(os.path.splitext(path)[1], len(ranks)))


def _item_of(case: ElementTree.Element) -> str:
    for entry in case.iterfind("properties/property"):
        if entry.get("name") == ITEM_PROPERTY:
            return entry.get("value", "")
    return ""
