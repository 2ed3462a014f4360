"""Our warnings of a run: written below the tables, each kind once with its count.

pytest would write each of them above the tables, before the answer. It still counts them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest

from pytest_mlms.warning_types import MlmsWarning


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
