"""Exports of a history: its runs' lines as they are, and its changes.

A line of JSON begins each run and tells the number of its lines, which follow as in results.jsonl.
The changes come last, a line each.
"""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, text

from pytest_mlms.core.files import open_regular
from pytest_mlms.keep.history.carried_changes import read_changes
from pytest_mlms.keep.history.errors import HistoryDamaged, HistoryError

VERSION = 1
_MARK = "mlms_history"
_RUNS = "SELECT id FROM run ORDER BY started, id"
_LINES = "SELECT json FROM line WHERE run = :run ORDER BY number"


@dataclass(frozen=True)
class StoredRun:
    """The lines of a run of a history or an export; ``where`` names them in errors."""

    where: str
    lines: list[bytes]


def export_lines(connection: Connection) -> Iterator[str]:
    """Yield the lines of an export; only those of one run are in memory."""
    names = list(connection.execute(text(_RUNS)).scalars())
    for name in names:
        lines = list(connection.execute(text(_LINES), {"run": name}).scalars())
        yield json.dumps({_MARK: VERSION, "run": name, "lines": len(lines)})
        yield from lines
    for change in read_changes(connection):
        yield json.dumps({_MARK: VERSION, "change": change})


def readable_runs(connection: Connection, where: str) -> Iterator[StoredRun]:
    """Yield the runs of a damaged history, each up to the line that can't be read."""
    names = list(connection.execute(text(_RUNS)).scalars())
    for name in names:
        lines: list[bytes] = []
        with contextlib.suppress(HistoryDamaged):
            for line in connection.execute(text(_LINES), {"run": name}).scalars():
                lines.append(f"{line}\n".encode())
        yield StoredRun(f"{where}, run {name}", lines)


def is_export(path: Path) -> bool:
    """Return whether a file begins as an export does; raises OSError."""
    with open_regular(path) as file:
        return file.readline(200).startswith(f'{{"{_MARK}"'.encode())


@dataclass
class ExportReader:
    """Reads an export; ``changes`` are there once all runs were read."""

    path: Path
    changes: list[dict[str, Any]] = field(default_factory=list)

    def runs(self) -> Iterator[StoredRun]:
        """Yield the runs; raises HistoryError where the export is cut off or something else."""
        with open_regular(self.path) as file:
            number = 0
            while line := file.readline():
                number += 1
                mark = self._parse(line, number)
                if "change" in mark:
                    self.changes.append(mark["change"])
                    continue
                count = mark["lines"]
                lines = list(itertools.islice(file, count))
                if len(lines) < count:
                    raise HistoryError(
                        f"{self.path}:{number + len(lines)}: it ends within the run {mark['run']}; "
                        f"export it again"
                    )
                yield StoredRun(f"{self.path}:{number}, run {mark['run']}", lines)
                number += count

    def _parse(self, line: bytes, number: int) -> dict[str, Any]:
        problem = f"{self.path}:{number}: it is no line of 'mlms history export'; export it again"
        try:
            mark = json.loads(line)
            version = mark[_MARK]
            is_valid = "change" in mark or (mark["lines"] >= 0 and isinstance(mark["run"], str))
        except (ValueError, KeyError, TypeError, RecursionError):
            raise HistoryError(problem) from None
        if version != VERSION:
            raise HistoryError(
                f"{self.path}:{number}: it has version {version!r} of exports, this one reads "
                f"{VERSION}; upgrade pytest-mlms"
            )
        if not is_valid:
            raise HistoryError(problem)
        return dict(mark)
