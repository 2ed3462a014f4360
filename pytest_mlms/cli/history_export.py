"""``mlms history export`` and ``mlms history rebuild``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pytest_mlms.cli.arguments import print_error
from pytest_mlms.core.files import replacing


def add_export(commands: Any, common: argparse.ArgumentParser) -> None:
    """Add the command that writes a history as lines of JSON."""
    parser = commands.add_parser(
        "export", parents=[common], help="write all lines and changes as lines of JSON"
    )
    parser.add_argument(
        "file", nargs="?", default="-", metavar="FILE", help="default: -, the standard output"
    )
    parser.set_defaults(run=_export)


def add_rebuild(commands: Any, common: argparse.ArgumentParser) -> None:
    """Add the command that makes the tables of a history anew."""
    parser = commands.add_parser(
        "rebuild",
        parents=[common],
        help="make a history anew from its own lines, folders of results, and exports",
    )
    parser.add_argument(
        "sources",
        nargs="*",
        type=Path,
        metavar="RESULTS",
        help="folder of runs, a run's folder, or an export",
    )
    parser.set_defaults(run=_rebuild)


def _export(options: argparse.Namespace) -> int:
    from pytest_mlms.keep.history.errors import HistoryError
    from pytest_mlms.keep.history.export import export_lines
    from pytest_mlms.keep.history.store import open_to_read

    with open_to_read(options.history).connect() as connection:
        lines = export_lines(connection)
        if options.file == "-":
            _write(lines, sys.stdout)
            return 0
        path = Path(options.file)
        try:
            with replacing(path) as temporary, temporary.open("w", encoding="utf-8") as file:
                _write(lines, file)
        except OSError as error:
            raise HistoryError(f"{path}: {error.strerror}; name another file") from None
    return 0


def _write(lines: Iterable[str], file: Any) -> None:
    for line in lines:
        file.write(f"{line}\n")


def _rebuild(options: argparse.Namespace) -> int:
    """Return 1 where something could not be taken over."""
    from pytest_mlms.keep.history.rebuild import rebuild

    rebuilt = rebuild(options.history, options.sources)
    for problem in rebuilt.problems:
        print_error(problem)
    if rebuilt.lost_changes:
        print_error(f"{rebuilt.lost_changes:,} changes are of series that are no longer there")
    if rebuilt.aside:
        print(f"the damaged file is {rebuilt.aside} now")
    print(f"{_count(rebuilt.runs, 'run')}, {_count(rebuilt.points, 'point')}")
    return 1 if rebuilt.problems or rebuilt.lost_changes else 0


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
