"""Artifacts of items as attachments in a JUnit file, as GitLab, Jenkins and Azure read them.

A line ``[[ATTACHMENT|path]]`` of a test case's ``system-out`` names a file. GitLab shows the first
one of a test case that failed, by a path below CI_PROJECT_DIR that the job keeps as an artifact.
"""

from __future__ import annotations

import io
import os
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Mapping
from pathlib import Path

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.files import write_atomically
from pytest_mlms.core.recorded import Recorded, recorded_artifacts
from pytest_mlms.core.text import visible
from pytest_mlms.show.report.junit import ITEM_PROPERTY
from pytest_mlms.show.report.last_results import Result, last_results

_NOT_IN_PATHS = "[]|\r\n"
_FIRST = (".png", ".jpg", ".csv")
"""The suffixes that are attached first: GitLab shows one file, best a picture."""

_NOT_SHOWN = ("PASSED", "SKIPPED", "IMPROVED", "XFAILED")


def attach_artifacts(
    path: Path, results: Iterable[Result], run_folder: Path, project: Path
) -> None:
    """Add the artifacts of items that did not pass to their test cases in a JUnit file.

    Files outside of ``project`` are left out. Raises MlmsError where the file can't be changed.
    """
    attachments = {}
    for item in last_results(results):
        if item["verdict"] not in _NOT_SHOWN:
            attachments[visible(item["nodeid"])] = _paths(item, run_folder, project)
    try:
        tree = ElementTree.parse(path)
        if _attach(tree.iter("testcase"), attachments):
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
    return sorted(found, key=_rank)


def _rank(path: str) -> int:
    suffix = os.path.splitext(path)[1]
    return _FIRST.index(suffix) if suffix in _FIRST else len(_FIRST)


def _attach(cases: Iterable[ElementTree.Element], attachments: Mapping[str, Iterable[str]]) -> bool:
    """Add lines to the test cases of items; return whether there were any to add."""
    changed = False
    for case in cases:
        lines = [f"[[ATTACHMENT|{path}]]" for path in attachments.get(_item_of(case), ())]
        if lines:
            _add_output(case, "\n".join(lines))
            changed = True
    return changed


def _item_of(case: ElementTree.Element) -> str:
    for entry in case.iterfind("properties/property"):
        if entry.get("name") == ITEM_PROPERTY:
            return entry.get("value", "")
    return ""


def _add_output(case: ElementTree.Element, text: str) -> None:
    """Put a text in front of the case's output: GitLab's parser can't read two elements of it."""
    output = case.find("system-out")
    if output is None:
        output = ElementTree.SubElement(case, "system-out")
    output.text = "\n".join([text, output.text or ""])
