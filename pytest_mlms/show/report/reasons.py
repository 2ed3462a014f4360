"""The run in pytest's own summaries: the reasons why items did not pass, and our warnings.

Reasons are lines, for the short summary, annotations and rows of tables: the whole text of a
failure stands under FAILURES or ERRORS, and is told there once. Our warnings are written below the
tables, each kind once with its count: pytest would write each of them above, before the answer. It
still counts them."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pytest_mlms.core.records import Verdict
from pytest_mlms.core.text import visible
from pytest_mlms.decide.upgrade.labels import deciding, short_changes
from pytest_mlms.show.pages.item import Finding, ItemView, findings_of
from pytest_mlms.show.pages.run import items_of
from pytest_mlms.warning_types import MlmsWarning

_MOST_COLUMNS = 100
"""Columns of a line where pytest does not cut it, as in CI."""

_PLACE = re.compile(r"(?P<path>[^\n]+?\.ya?ml):\d+(?::\d+)?: ")
_FOLDERS = re.compile(r"(?<!\S)(?:/[^\s/:]+)+/(?=[^\s/])")
_LOG = re.compile(r"(?<!\S)\S*\bagents/[^\s/]+-\d+\.log\b")
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

    What was measured is no reason where it can't be trusted. An error, as of a tear-down, has what
    had been decided before it where that was bad, too.
    """
    findings = findings_of(item)
    if item.verdict is Verdict.ERROR:
        forms = _of_message(item)
        for finding in findings:
            if finding.verdict in _BROKEN:
                before = f"{finding.verdict.value} as well: {forms_of(finding)[0]}"
                return [f"{forms[0]}; {before}", *forms]
        return forms
    compared = deciding(item.verdict, item.comparisons)
    found = [finding for finding in findings if finding.verdict is item.verdict]
    if item.verdict is Verdict.INVALID or not (compared or found):
        return _of_message(item)
    shown = short_changes(compared[0]) if compared else forms_of(found[0])
    count = len(compared or found)
    return [f"{shown[0]}, and {count - 1} more", *shown] if count > 1 else [*shown]


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

    raised = ""  # the first line of the last exception, as pytest writes it
    before: re.Match[str] | None = None
    for line in lines:
        found = _RAISED.match(line)
        if found is not None and before is None:
            raised = found["text"]
        before = found
    if raised:
        return raised

    group = next(filter(None, map(_OF_GROUP.fullmatch, lines)), None)  # as Python writes them
    if group is not None:
        return group["text"]
    frames = [number for number, line in enumerate(lines) if line.startswith(_FRAME)]
    behind = lines[frames[-1] :] if frames else []
    return next((line for line in behind if not line[:1].isspace()), "") or lines[0].strip()


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

    The others name it. The short summary of each has its figures, as far as its line has room:
    pytest does not cut it in CI. Nothing is cut for -vv, and where no section above has the text.
    ``results`` are the lines of the run's items.
    """
    option = terminal.config.option
    width: int = terminal._tw.fullwidth
    is_in_ci = any(os.environ.get(name) for name in ("CI", "BUILD_NUMBER"))
    if is_in_ci:
        width = max(width, _MOST_COLUMNS)
    if option.verbose >= 2 or option.tbstyle == "line" or (is_in_ci and option.tbstyle == "no"):
        width = sys.maxsize

    lines = {line["nodeid"]: line for line in results}
    for category in ("error", "failed"):  # each has a section, and -r may show one of them only
        ours = []
        for report in terminal.stats.get(category, ()):
            # Those without a traceback; a tear-down that failed as well has a text of its own.
            traceback = getattr(report.longrepr, "reprtraceback", None)
            message = (lines.get(report.nodeid, {}).get("message") or "").strip()
            is_plain = getattr(traceback, "style", "") == "value"
            if is_plain and message and message in report.longreprtext:
                ours.append(report)
        items = items_of([lines[report.nodeid] for report in ours], Path())
        for report, item, forms in zip(ours, items, told_once(items), strict=True):
            if forms[-1] == _REPEATED:
                from pytest_mlms.show.report.outcome import without_traceback

                report.longrepr = without_traceback(f"{_label(item)}: {forms[0]}")
            own = getattr(report, "id", report.nodeid)  # a record since pytest 9.2
            nodeid = terminal.config.cwd_relative_nodeid(own)
            begun = f"{'ERROR' if category == 'error' else 'FAILED'} {nodeid} - "
            shown = [visible(form) for form in forms]
            report.longrepr.reprcrash.message = fitted(shown, width - len(begun))


class _Warned(NamedTuple):
    """A warning, and what pytest keeps of it."""

    kind: str
    place: str
    text: str
    nodeid: str
    report: Any


class OwnWarnings:
    """The warnings of a run that are ours."""

    def __init__(self) -> None:
        self._found: list[_Warned] = []

    def add(self, warning: Any, nodeid: str, terminal: pytest.TerminalReporter | None) -> None:
        """Take a warning that pytest's terminal has got, if it is one of ours."""
        if terminal is None or not issubclass(warning.category, MlmsWarning):
            return
        text = str(warning.message)
        known = {id(warned.report) for warned in self._found}
        for report in reversed(terminal.stats.get("warnings", ())):
            if text in report.message and id(report) not in known:
                place = f"{warning.filename}:{warning.lineno}"
                kind = warning.category.__name__
                self._found.append(_Warned(kind, place, text, nodeid, report))
                return

    def hide(self, terminal: pytest.TerminalReporter) -> None:
        """Keep our warnings out of the summary that pytest writes of them."""
        ours = {id(warned.report) for warned in self._found}
        shown = terminal.stats.get("warnings", ())
        terminal.stats["warnings"] = [report for report in shown if id(report) not in ours]

    def count_again(self, terminal: pytest.TerminalReporter) -> None:
        """Have pytest's last line count our warnings."""
        terminal.stats["warnings"] += [warned.report for warned in self._found]

    def _what_differs(self, warned: _Warned) -> str:
        """Return what warnings of a kind must share to be told by the first of them.

        One that is no kind stands for itself, and so do those of one place in no item, as nothing
        else tells them apart; others in no item share their advice.
        """
        if warned.kind == MlmsWarning.__name__:
            return warned.text
        if warned.nodeid:
            return ""
        same_place = [one for one in self._found if one.place == warned.place and not one.nodeid]
        if len({one.text for one in same_place}) > 1:
            return warned.text
        return warned.text.rpartition("; ")[2]

    def write(self, terminal: pytest.TerminalReporter) -> None:
        """Write the first warning of each kind, and how many more there are of which items.

        With -v all are written.
        """
        if not self._found or not terminal.hasopt("w"):
            return
        by_kind: dict[tuple[str, str], list[_Warned]] = {}
        for warned in self._found:
            own_text = warned.text if terminal.verbosity > 0 else self._what_differs(warned)
            by_kind.setdefault((warned.kind, own_text), []).append(warned)
        terminal.write_sep("-", "mlms: warnings", yellow=True)
        for (kind, _), (first, *others) in by_kind.items():
            text = first.text.replace("\n", "\n    ")
            terminal.write_line(f"  {first.place}: {kind}: {text}")
            if others:
                room = terminal._tw.fullwidth
                terminal.write_line(_more(kind, [_about(one) for one in others], room))


def _about(warned: _Warned) -> str:
    """Return the item that a warning is about, else its line."""
    return warned.nodeid.rpartition("::")[2] or warned.place


def _more(kind: str, about: Sequence[str], room: int) -> str:
    """Return a line of the further warnings of a kind, with as many of their items as have room."""
    line = f"    and {len(about):,} more {kind}: {about[0]}"
    for name in about[1:]:
        if len(line) + len(name) + len(", , …") > room:
            return f"{line}, …"
        line += f", {name}"
    return line
