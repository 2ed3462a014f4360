"""Screens: what a terminal shows at the end of recorded runs, at two widths, kept as text.

A change of a table changes them, and is looked at in the diff. Write them anew with

    python -m tests.support.screens

and keep other runs with ``python -m tests.support.screens RESULTS.JSONL…``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from pytest_mlms.show.pages.run import items_of
from pytest_mlms.show.report.reasons import fitted, told_once
from pytest_mlms.show.report.reporter import _shown
from pytest_mlms.show.report.terminal import summary_line, write_tables

FOLDER = Path(__file__).parent.parent / "show" / "report" / "screens"
WIDTHS = (80, 100)

_LEFT_OUT = ("artifacts", "logs", "versions", "reproduce")


class Terminal:
    """A terminal that keeps its lines."""

    def __init__(self, width: int) -> None:
        self._tw = SimpleNamespace(fullwidth=width)
        self.lines: list[str] = []

    def write_line(self, line: str, **markup: bool) -> None:
        self.lines.append(line)

    def write_sep(self, separator: str, title: str, **markup: bool) -> None:
        self.lines.append(f" {title} ".center(self._tw.fullwidth, separator))


def screen(width: int) -> str:
    """Return the tables of the recorded items, and the short summary of those that failed."""
    terminal = Terminal(width)
    for path in sorted(FOLDER.glob("*.jsonl")):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        items = items_of(lines, FOLDER)
        write_tables(cast(pytest.TerminalReporter, terminal), items)
        failed = [item for item in items if item.outcome == "failed"]
        for item, forms in zip(failed, told_once(failed), strict=True):
            begun = f"FAILED {item.nodeid} - "
            terminal.lines.append(f"{begun}{fitted(forms, width - len(begun))}")
        terminal.lines += [summary_line(items), ""]
    return "\n".join(terminal.lines)


def record(results: Path) -> None:
    """Keep the lines of a run under the name of its folder's folder, without what tables lack."""
    kept = []
    for text in results.read_text().splitlines():
        line = json.loads(text)
        if line["type"] == "item":
            fields = {name: value for name, value in _shown(line).items() if name not in _LEFT_OUT}
            fields["rounds"] = [{} for _ in fields.get("rounds", ())]
            kept.append(json.dumps(fields).replace(str(results.parents[2]), "/home/me"))
    target = FOLDER / f"{results.absolute().parents[2].name}.jsonl"
    target.write_text("".join(f"{line}\n" for line in kept))


def main(arguments: Sequence[str]) -> None:
    """Record runs, if any are named, and write the screens."""
    FOLDER.mkdir(exist_ok=True)
    for argument in arguments:
        record(Path(argument))
    for width in WIDTHS:
        (FOLDER / f"{width}.txt").write_text(screen(width))


if __name__ == "__main__":
    main(sys.argv[1:])
