"""``mlms history add``: runs, and those that are queued, are added to the history."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_mlms.cli.arguments import add_results, print_error

if TYPE_CHECKING:
    from pytest_mlms.keep.history.adding import Added


def add_add(commands: Any, common: argparse.ArgumentParser) -> None:
    """Add the command."""
    parser = commands.add_parser("add", parents=[common], help="add runs to the history")
    parser.add_argument(
        "runs",
        nargs="*",
        type=Path,
        metavar="RUN",
        help="a run's folder, or a folder of runs; without one, the runs that are queued",
    )
    add_results(parser, "folder whose queue is meant (default: mlms-results)", "--results")
    parser.set_defaults(run=_add)


def _add(options: argparse.Namespace) -> int:
    """Return 1 where a run could not be added; the others are."""
    if not options.runs:
        return _add_queued(options.results, options.history)
    from pytest_mlms.keep.history.adding import add_run
    from pytest_mlms.keep.history.errors import HistoryError, HistoryUnavailable
    from pytest_mlms.keep.history.store import open_history

    status = 0
    history = open_history(options.history)
    for run in _runs_of(options.runs):
        try:
            _print(add_run(history, run))
        except HistoryUnavailable:
            raise
        except HistoryError as error:
            print_error(error)
            status = 1
    return status


def _add_queued(results: Path, address: str) -> int:
    from pytest_mlms.keep.history.catching_up import catch_up, queue_of

    queue = queue_of(results, address)
    caught_up = catch_up(queue, results, address, with_refused=True)
    for added in caught_up.added:
        _print(added)
    for problem in caught_up.problems:
        print_error(problem)
    if not caught_up.added and not caught_up.problems:
        print(f"no run in {results} is queued for {queue.history}")
    for other in queue.others():
        print(f"{other.folder} is queued for {other.history}")
    return 1 if caught_up.problems else 0


def _runs_of(paths: Iterable[Path]) -> Iterator[Path]:
    """Yield each run that is named, and the runs of a folder of runs, the oldest first."""
    for path in paths:
        files = sorted(path.glob("*/results.jsonl"))
        if (path / "results.jsonl").exists() or not files:
            yield path
            continue
        for file in files:
            if not file.parent.is_symlink():  # such as latest
                yield file.parent


def _print(added: Added) -> None:
    print(f"{added.run}: {added.lines:,} lines added, {added.points:,} points")
