"""Annotations of GitHub Actions: failed and undecided items at their lines of manifests.

pytest-github-actions-annotate-failures annotates every failed test and every warning, from its
version 0.4 on, and knows nothing of GitHub's ten: what it would say of our items is left to us."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest

from pytest_mlms.core.text import shortened, visible
from pytest_mlms.show.pages.item import ItemView, findings_of
from pytest_mlms.show.report.reasons import by_reason, reasons_of
from pytest_mlms.warning_types import MlmsInconclusive

_ERRORS = "annotate_errors"
_WARNINGS = "annotate_warnings"
"""The names by which that plugin registers its parts."""


def leave_items_to_us(plugins: pytest.PytestPluginManager) -> None:
    """Keep failed and undecided items from the other plugin, where it is there."""
    errors = plugins.getplugin(_ERRORS)
    if hasattr(errors, "pytest_runtest_logreport"):
        plugins.unregister(name=_ERRORS)
        plugins.register(_OtherErrors(errors), _ERRORS)
    warnings = plugins.getplugin(_WARNINGS)
    if hasattr(warnings, "pytest_warning_recorded"):
        plugins.unregister(name=_WARNINGS)
        plugins.register(_OtherWarnings(warnings), _WARNINGS)


class _OtherErrors:
    """Hands over the reports that have no result of ours."""

    def __init__(self, annotator: Any) -> None:
        self._annotator = annotator

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not hasattr(report, "mlms"):
            self._annotator.pytest_runtest_logreport(report)


class _OtherWarnings:
    """Hands over the warnings that are not of undecided items."""

    def __init__(self, annotator: Any) -> None:
        self._annotator = annotator

    def pytest_warning_recorded(
        self, warning_message: Any, when: str, nodeid: str, location: Any
    ) -> None:
        if not issubclass(warning_message.category, MlmsInconclusive):
            self._annotator.pytest_warning_recorded(warning_message, when, nodeid, location)


Level = Literal["error", "warning"]

_DATA = {"%": "%25", "\r": "%0D", "\n": "%0A"}
"""Character -> its escape in a message."""

_PROPERTY = {**_DATA, ":": "%3A", ",": "%2C"}
"""Character -> its escape in a property."""

_MOST = 9
"""GitHub shows ten errors and ten warnings of a step; the tenth counts the others."""

_LONGEST = 4000  # characters of a message
_PLACE = re.compile(r"(?P<path>[^\n]+?):(?P<line>\d+)(?=:|$)")
_MANIFEST_ERROR = re.compile(r"(?P<place>[^\n]+?\.ya?ml:\d+): (?P<message>.+)")
_BAD_OUTCOMES = ("failed", "interrupted")


def workflow_command(level: Level, message: str, properties: Mapping[str, str]) -> str:
    """Return a command that annotates a line; no text in it can begin a command of its own."""
    pairs = []
    for name, value in properties.items():
        pairs.append(f"{name}={_escape(value, _PROPERTY)}")
    command = f"{level} {','.join(pairs)}".rstrip()
    return f"::{command}::{_escape(message, _DATA)}"


def _escape(text: str, escapes: Mapping[str, str]) -> str:
    table = str.maketrans({**escapes})
    return visible(text).translate(table)


class _Note(NamedTuple):
    """A title, a message, the line that they are about, and how many items or errors share it."""

    title: str
    message: str
    place: str
    items: int = 1


def github_annotations(
    items: Iterable[ItemView],
    collection: Sequence[str],
    folder: Path,
    workspace: Path,
    has_summary: bool = True,
) -> Iterator[str]:
    """Yield the commands for a run: errors of manifests first, then items, the worst ones first.

    ``collection`` has the texts of what could not be collected. ``folder`` is what paths of items
    are relative to, and ``workspace`` what those of GitHub are. Without a summary of the job, the
    log is named as what has the rest.
    """
    rest = "summary of this job" if has_summary else "log of this job"
    errors: list[_Note] = []
    warnings: list[_Note] = []
    for text in collection:
        errors += _manifest_errors(text)
    for item, *others in by_reason(sorted(items, key=lambda item: item.badness)):
        if item.outcome in _BAD_OUTCOMES:
            errors.append(_of_item(item, others, rest))
        elif item.outcome == "undecided":
            warnings.append(_of_item(item, others, rest))
    yield from _limited("error", errors, folder, workspace, rest)
    yield from _limited("warning", warnings, folder, workspace, rest)


def has_manifest_errors(text: str) -> bool:
    """Return whether a text of what could not be collected names a line of a manifest."""
    return any(_manifest_errors(text))


def _manifest_errors(text: str) -> Iterator[_Note]:
    """Yield the errors of a manifest, each of which has a line of its own."""
    for line in text.splitlines():
        found = _MANIFEST_ERROR.fullmatch(line)
        if found is not None:
            yield _Note("mlms: the manifest is wrong", found["message"], found["place"])


def _of_item(item: ItemView, others: Sequence[ItemView], rest: str) -> _Note:
    """Return the reason of an item in a line, and where its whole text is.

    ``others`` are items that have the same text, and ``rest`` has the whole text.
    """
    title = f"{item.manifest.name} {item.case}: {item.verdict.value}"
    reason, *_ = reasons_of(item)
    if others:
        reason += f"\nthe same for {len(others):,} more: {', '.join(one.case for one in others)}"
    message = f"{reason}\nthe {rest} has the whole text: {item.nodeid}"
    return _Note(title, message, place_of(item), 1 + len(others))


def _limited(
    level: Level, notes: Sequence[_Note], folder: Path, workspace: Path, rest: str
) -> Iterator[str]:
    for note in notes[:_MOST]:
        properties = _location(note.place, folder, workspace)
        properties["title"] = note.title
        yield workflow_command(level, shortened(note.message, _LONGEST), properties)
    count = sum(note.items for note in notes[_MOST:])
    if count > 0:
        kind = "failed" if level == "error" else "undecided"
        noun = "item" if count == 1 else "items"
        others = f"and {count:,} more {kind} {noun}; the {rest} lists them"
        yield workflow_command(level, others, {"title": f"mlms: {count:,} more"})


def place_of(item: ItemView) -> str:
    """Return the line that decided an item as ``path:line``.

    It is that of the worst limit or tolerance, else the one that its error names, else its own.
    Options that set a tolerance have no line.
    """
    for finding in findings_of(item):
        if _PLACE.fullmatch(finding.place):
            return finding.place
    named = _PLACE.match(item.message or "")
    if named is not None and named["path"] == item.manifest.path:
        return named[0]
    return item.place or item.manifest.path


def _location(place: str, folder: Path, workspace: Path) -> dict[str, str]:
    """Return the file and the line as GitHub wants them; nothing for a file out of its reach."""
    found = _PLACE.fullmatch(place)
    path = found["path"] if found else place
    absolute = os.path.normpath(folder / path)
    relative = os.path.relpath(absolute, workspace)
    if relative.startswith(os.pardir):
        return {}
    location = {"file": relative}
    if found:
        location["line"] = found["line"]
    return location
