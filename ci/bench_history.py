"""Adding a run of 10,000 items to a history, and rebuilding one of 1,000 runs."""

from __future__ import annotations

import itertools
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from bench_row import ROOT, Row

sys.path.insert(0, str(ROOT))  # of the tests' support

from pytest_mlms.keep.history.adding import add_run
from pytest_mlms.keep.history.export import rebuild
from pytest_mlms.keep.history.store import open_history
from tests.support.histories import write_run
from tests.support.postgresql import find_binaries, running_server

ITEMS = 10_000
RUNS = 1_000
ITEMS_OF_A_RUN = 10
"""The items of each of the runs, as many as a small repository has."""

ADD_BOUND = 5  # seconds
REBUILD_BOUND = 60  # seconds


def measure_writing() -> Iterator[Row]:
    """Yield the seconds of both on each kind of database."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        runs = [write_run(folder / "large", night, ITEMS) for night in range(2)]
        for night in range(RUNS):
            write_run(folder / "small", night, ITEMS_OF_A_RUN)
        numbers = itertools.count()

        def new_file() -> str:
            return str(folder / f"{next(numbers)}.sqlite")

        yield from _rows("SQLite", new_file, runs, folder / "small")
        if find_binaries() is not None:
            with running_server() as server:
                yield from _rows("PostgreSQL", server.database, runs, folder / "small")


def _rows(
    name: str, new_address: Callable[[], str], runs: list[Path], results: Path
) -> Iterator[Row]:
    first, second = runs
    history = open_history(new_address())
    seconds = _seconds_of(lambda: add_run(history, first))
    yield Row(f"add: the first run of {ITEMS:,} items, {name}, seconds", seconds, ADD_BOUND)
    seconds = _seconds_of(lambda: add_run(history, second))
    yield Row(f"add: the next run of {ITEMS:,} items, {name}, seconds", seconds, ADD_BOUND)
    small = new_address()
    rebuild(small, [results])
    seconds = _seconds_of(lambda: rebuild(small, []))
    title = f"rebuild: {RUNS:,} runs of {ITEMS_OF_A_RUN} items, {name}, seconds"
    yield Row(title, seconds, REBUILD_BOUND)


def _seconds_of(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
