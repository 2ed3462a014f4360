"""Why items did not pass, in one line: for pytest's short summary, annotations and rows of tables.

The whole text of a failure stands under FAILURES or ERRORS, and is told there once.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from pytest_mlms.core.records import Verdict
from pytest_mlms.core.text import visible
from pytest_mlms.decide.upgrade.labels import deciding, short_changes
from pytest_mlms.show.pages.findings import Finding, findings_of
from pytest_mlms.show.pages.item import ItemView
from pytest_mlms.show.pages.run import items_of

_MOST_COLUMNS = 100
"""Columns of a line where pytest does not cut it, as in CI."""

_PLACE = re.compile(r"(?P<path>[^\n]+?\.ya?ml):\d+(?::\d+)?: ")
_FOLDERS = re.compile(r"(?<!\S)(?:/[^\s/:]+)+/(?=[^\s/])")
_LOG = re.compile(r"\S*\bagents/[^\s/]+-\d+\.log\b")
_RAISED = re.compile(r"E {3,}(?P<text>\S.*)")
_OF_GROUP = re.compile(r" *\| (?P<text>\S+: .*\(\d+ sub-exceptions?\))")
_FRAME = '  File "'
_BROKEN = (Verdict.REGRESSED, Verdict.FAILED)
_REPRODUCE = "reproduce: "
_REPEATED = "the same"


def fitted(forms: Sequence[str], room: int) -> str:
    """Return the first of several forms of a text that has room, else the last one, cut off."""
    for form in forms:
        if len(form) <= room:
            return form
    last = forms[-1]
    return f"{last[: max(1, room - 1)]}…"


def reasons_of(item: ItemView) -> list[str]:
    """Return why an item did not pass in a line, with its figures; the longest form first.

    What was measured is no reason where it can't be trusted.
    """
    if item.verdict is Verdict.INVALID:
        return _of_message(item)
    if item.verdict is Verdict.ERROR:
        return _of_error(item)
    compared = deciding(item.verdict, item.comparisons)
    found = [finding for finding in findings_of(item) if finding.verdict is item.verdict]
    if compared:
        forms, count = short_changes(compared[0]), len(compared)
    elif found:
        forms, count = forms_of(found[0]), len(found)
    else:
        return _of_message(item)
    return [f"{forms[0]}, and {count - 1} more", *forms] if count > 1 else [*forms]


def _of_error(item: ItemView) -> list[str]:
    """Return an error, and what had been decided before it where that was bad, too.

    An item of a limit or a tolerance may end with an error of its tear-down.
    """
    forms = _of_message(item)
    for finding in findings_of(item):
        if finding.verdict in _BROKEN:
            before = f"{finding.verdict.value} as well: {forms_of(finding)[0]}"
            return [f"{forms[0]}; {before}", *forms]
    return forms


def forms_of(finding: Finding) -> tuple[str, ...]:
    """Return what a line says of a limit, the longest form first."""
    value = finding.measured.partition(" (")[0]
    if finding.measured.endswith(") %"):
        value += " %"
    name, bound = finding.quantity, finding.bound
    number = bound.replace("at least ", "").replace("at most ", "")
    return (
        f"{name} {finding.measured}, {bound}",
        f"{name} {value}, {bound}",
        f"{name} {value}, {number}",
        f"{name.rpartition(' ')[2]} {value}",
    )


def _of_message(item: ItemView) -> list[str]:
    """Return the first line of an item's message, without what its node id says already.

    The place of another file than the manifest stays, as nothing else names it.
    """
    text = headline(item)
    place = _PLACE.match(text)
    if place is not None and place["path"] in (item.manifest.path, item.nodeid.partition("::")[0]):
        text = text[place.end() :]
    text = text.removeprefix(f"{_label(item)}:").strip() or item.verdict.value
    named = _FOLDERS.sub("", text)
    return [text, named, named.partition("; ")[0]]


def headline(item: ItemView) -> str:
    """Return the first line of an item's message; of a traceback the line of what was raised.

    Of a chain of exceptions it is the last one that is told.
    """
    lines = (item.message or "").strip("\n").splitlines() or [item.verdict.value]
    if any(line.startswith(_REPRODUCE) for line in lines):  # a text, which may quote a traceback
        return lines[0]
    return _raised_in_pytest(lines) or _raised_in_python(lines) or lines[0].strip()


def _raised_in_pytest(lines: Sequence[str]) -> str:
    """Return the first line of the last exception in a traceback of pytest; "" where none is."""
    raised = ""
    before: re.Match[str] | None = None
    for line in lines:
        found = _RAISED.match(line)
        if found is not None and before is None:
            raised = found["text"]
        before = found
    return raised


def _raised_in_python(lines: Sequence[str]) -> str:
    """Return that of a traceback as Python writes it, and of a group; "" where none is."""
    group = next(filter(None, map(_OF_GROUP.fullmatch, lines)), None)
    if group is not None:
        return group["text"]
    frames = [number for number, line in enumerate(lines) if line.startswith(_FRAME)]
    behind = lines[frames[-1] :] if frames else []
    return next((line for line in behind if not line[:1].isspace()), "")


def same_text(item: ItemView) -> str:
    """Return what is alike in the messages of items that failed for one reason.

    An item that a limit or a tolerance decided has a reason of its own.
    """
    if findings_of(item):
        return item.nodeid
    lines = (item.message or item.nodeid).splitlines()
    kept = [line for line in lines if not line.startswith(_REPRODUCE)]
    return _LOG.sub("", "\n".join(kept).replace(f"{_label(item)}: ", ""))


def _label(item: ItemView) -> str:
    return f"{item.manifest.name} {item.case}"


def by_reason(items: Iterable[ItemView]) -> list[list[ItemView]]:
    """Group items whose messages are alike, in their order; those of a group ended alike, too."""
    groups: dict[tuple[str, ...], list[ItemView]] = {}
    for item in items:
        key = (item.verdict.value, item.outcome, same_text(item))
        groups.setdefault(key, []).append(item)
    return list(groups.values())


def told_once(items: Iterable[ItemView]) -> Iterator[list[str]]:
    """Yield why each item failed, or which item before it has the same text."""
    first_of: dict[str, str] = {}
    for item in items:
        first = first_of.setdefault(same_text(item), item.nodeid)
        if first == item.nodeid:
            yield reasons_of(item)
        else:
            names = (first, first.rpartition("::")[2], "above")
            yield [*(f"the same as {name}" for name in names), _REPEATED]


def tell_failures_once(
    terminal: pytest.TerminalReporter, results: Iterable[Mapping[str, Any]]
) -> None:
    """Have pytest show the text that several items failed with for the first of them only.

    The others name it. The short summary of each has its figures, as far as its line has room.
    ``results`` are the lines of the run's items.
    """
    lines = {line["nodeid"]: line for line in results}
    for category in ("error", "failed"):  # each has a section, and -r may show one of them only
        shown = terminal.stats.get(category, ())
        ours = [report for report in shown if _is_text(report, lines.get(report.nodeid, {}))]
        items = items_of([lines[report.nodeid] for report in ours], Path())
        for report, item, forms in zip(ours, items, told_once(items), strict=True):
            if forms[-1] == _REPEATED:
                from pytest_mlms.show.report.outcome import without_traceback

                report.longrepr = without_traceback(f"{_label(item)}: {forms[0]}")
            nodeid = terminal.config.cwd_relative_nodeid(report.nodeid)
            begun = f"{'ERROR' if category == 'error' else 'FAILED'} {nodeid} - "
            room = _width(terminal) - len(begun)
            report.longrepr.reprcrash.message = fitted([visible(form) for form in forms], room)


def _is_text(report: Any, line: Mapping[str, Any]) -> bool:
    """Return whether pytest shows a failed item by the text of its line, without a traceback.

    The line of an item whose tear-down failed as well has the text of that.
    """
    traceback = getattr(report.longrepr, "reprtraceback", None)
    message = (line.get("message") or "").strip()
    is_plain = getattr(traceback, "style", "") == "value"
    return is_plain and bool(message) and message in report.longreprtext


def _width(terminal: pytest.TerminalReporter) -> int:
    """Return the columns of a line of the short summary, which pytest does not cut in CI.

    Nothing is cut for -vv, and where no section above has the text: pytest cuts what it must.
    """
    option = terminal.config.option
    width: int = terminal._tw.fullwidth
    is_in_ci = any(os.environ.get(name) for name in ("CI", "BUILD_NUMBER"))
    if option.verbose >= 2 or option.tbstyle == "line" or (is_in_ci and option.tbstyle == "no"):
        return sys.maxsize
    return max(width, _MOST_COLUMNS) if is_in_ci else width
