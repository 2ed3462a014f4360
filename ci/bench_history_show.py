"""Showing one series of a history of a million points, on each kind of database."""

from __future__ import annotations

import contextlib
import io
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench_row import ROOT, Row

sys.path.insert(0, str(ROOT))  # of the tests' support

from pytest_mlms.cli.main import main
from pytest_mlms.keep.history import schema
from pytest_mlms.keep.history.adding import Rows, insert_rows
from pytest_mlms.keep.history.series import Series, points_of
from pytest_mlms.keep.history.stacks import software_of
from pytest_mlms.keep.history.store import open_history, writing
from tests.support.histories import item_line, run_name
from tests.support.postgresql import find_binaries, running_server

MODELS = 305
NIGHTS = 365
REPEATS = 9
BOUND = 0.2  # seconds


def measure_show() -> Iterator[Row]:
    """Yield the seconds of ``mlms history show`` of a series, in a process that has its imports."""
    with tempfile.TemporaryDirectory() as folder:
        yield _row("SQLite", str(Path(folder) / "history.sqlite"))
    if find_binaries() is not None:
        with running_server() as server:
            yield _row("PostgreSQL", server.database())


def _row(name: str, address: str) -> Row:
    count = fill(address)
    seconds = [_seconds_to_show(address) for _ in range(REPEATS + 1)]
    title = f"show: a series of {count:,} points, {name}, seconds"
    return Row(title, statistics.median(seconds[1:]), BOUND)


def _seconds_to_show(address: str) -> float:
    arguments = ["history", "show", "--history", address, "-k", "model-77 and offline"]
    began = time.perf_counter()
    with contextlib.redirect_stdout(io.StringIO()) as output:
        status = main(arguments)
    seconds = time.perf_counter() - began
    assert status == 0, output.getvalue()
    assert run_name(NIGHTS - 1) in output.getvalue()
    return seconds


def fill(address: str) -> int:
    """Write series of all models, and a point of each for every night; return the points."""
    software = software_of(item_line(0))
    stack = software.lock_sha256
    versions = [(stack, name, version) for name, version in software.packages.items()]
    series = _series()
    every_run = [(run_name(night), f"2026-{night:04}", "vm") for night in range(NIGHTS)]
    points = Rows(schema.point, ("series", "run", "number", "started", "stack", "value", "verdict"))
    for run, started, _ in every_run:
        for number in range(len(series)):
            points.values.append((number + 1, run, 1, started, stack, 1.0 + number, "PASSED"))
    tables = [
        Rows(schema.run, ("id", "started", "host"), list(every_run)),
        Rows(schema.stack, ("lock_sha256", "framework", "python"), [(stack, "x", "3.11.7")]),
        Rows(schema.package, ("lock_sha256", "name", "version"), list(versions)),
        _series_rows(series),
        points,
    ]
    with writing(open_history(address)) as connection:
        for rows in tables:
            insert_rows(connection, rows)
    return len(points.values)


def _series() -> list[Series]:
    found = []
    for model in range(MODELS):
        found += [point.series for point in points_of(item_line(0, model))]
    return found


def _series_rows(series: list[Series]) -> Rows:
    columns = ("id", "key", "parts", "name", "quantity", "unit", "better", "control")
    rows = Rows(schema.series, columns)
    for number, each in enumerate(series, start=1):
        parts = json.dumps(dict(each.parts))
        of_quantity = (each.quantity, each.unit, each.better, False)
        rows.values.append((number, each.key, parts, each.name, *of_quantity))
    return rows
