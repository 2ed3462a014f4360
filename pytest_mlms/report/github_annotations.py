"""Annotations of GitHub Actions: failed and undecided items at their lines of manifests."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from pytest_mlms.records import Verdict
from pytest_mlms.report.last_results import Result, last_results, worst_first
from pytest_mlms.report.workflow_commands import Level, workflow_command
from pytest_mlms.text import shortened

__all__ = ["github_annotations", "place_of"]

_MOST = 9
"""GitHub shows ten errors and ten warnings of a step; the tenth counts the others."""

_LONGEST = 4000  # characters of a message
_PLACE = re.compile(r"(?P<path>[^\n]+?):(?P<line>\d+)(?=:|$)")
_MANIFEST_ERROR = re.compile(r"(?P<place>[^\n]+?\.ya?ml:\d+): (?P<message>.+)")
_BROKEN = (Verdict.FAILED.value, Verdict.INVALID.value)
_BAD_OUTCOMES = ("failed", "interrupted")


class _Note(NamedTuple):
    """A title, a message, and the line that they are about."""

    title: str
    message: str
    place: str


def github_annotations(
    results: Sequence[Result], collection: Sequence[str], folder: Path, workspace: Path
) -> Iterator[str]:
    """Yield the commands for a run: errors of manifests first, then items, the worst ones first.

    ``collection`` has the texts of what could not be collected. ``folder`` is what paths of results
    are relative to, and ``workspace`` what those of GitHub are.
    """
    errors: list[_Note] = []
    warnings: list[_Note] = []
    for text in collection:
        errors += _manifest_errors(text)
    for result in worst_first(last_results(results)):
        outcome = result.get("outcome")
        if outcome in _BAD_OUTCOMES:
            errors.append(_of_item(result))
        elif outcome == "undecided":
            warnings.append(_of_item(result))
    yield from _limited("error", errors, folder, workspace)
    yield from _limited("warning", warnings, folder, workspace)


def _manifest_errors(text: str) -> Iterator[_Note]:
    """Yield the errors of a manifest, each of which has a line of its own."""
    for line in text.splitlines():
        found = _MANIFEST_ERROR.fullmatch(line)
        if found is not None:
            yield _Note("mlms: the manifest is wrong", found["message"], found["place"])


def _of_item(result: Result) -> _Note:
    title = f"{result['manifest']['name']} {result['case']}: {result['verdict']}"
    return _Note(title, result.get("message") or result["nodeid"], place_of(result))


def _limited(level: Level, notes: Sequence[_Note], folder: Path, workspace: Path) -> Iterator[str]:
    for note in notes[:_MOST]:
        properties = _location(note.place, folder, workspace)
        properties["title"] = note.title
        yield workflow_command(level, shortened(note.message, _LONGEST), properties)
    rest = len(notes) - _MOST
    if rest > 0:
        title = f"mlms: {rest:,} more"
        yield workflow_command(level, _others(level, rest), {"title": title})


def _others(level: Level, count: int) -> str:
    kind = "failed" if level == "error" else "undecided"
    noun = "item" if count == 1 else "items"
    return f"and {count:,} more {kind} {noun}; the summary of the run lists them"


def place_of(result: Result) -> str:
    """Return the line that decided an item as ``path:line``.

    It is that of the worst limit or tolerance, else the one that its error names, else its own.
    """
    places = (*_limit_places(result), *_tolerance_places(result))
    if places:
        return places[0]
    named = _PLACE.match(result.get("message") or "")
    if named is not None and named["path"] == result["manifest"]["path"]:
        return named[0]
    return str(result.get("place") or result["manifest"]["path"])


def _limit_places(result: Result) -> Iterator[str]:
    """Yield the lines of the limits that decided an item."""
    verdict = result["verdict"]
    verdicts = _BROKEN if verdict in _BROKEN else (verdict,)
    for limit in result.get("limits") or ():
        if limit["verdict"] in verdicts:
            yield limit["place"]


def _tolerance_places(result: Result) -> Iterator[str]:
    """Yield the lines of the tolerances that decided an upgrade; options have none."""
    places = (result.get("terms") or {}).get("places") or {}
    for compared in result.get("comparisons") or ():
        place = places.get(compared["quantity"], "")
        if compared["verdict"] == result["verdict"] and _PLACE.fullmatch(place):
            yield place


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
