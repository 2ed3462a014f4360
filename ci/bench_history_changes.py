"""Search of a history for changes: seconds and memory, on SQLite."""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from bench_row import ROOT, Row

sys.path.insert(0, str(ROOT))  # of the tests' support

from pytest_mlms.keep.history import schema
from pytest_mlms.keep.history.adding import Rows, insert_rows
from pytest_mlms.keep.history.store import open_history, writing
from tests.support.histories import run_name

SERIES = 10_000
NIGHTS = 365
STEP_AT = 180  # where a tenth of the series change
SECONDS = 30.0
MEMORY = 1024.0  # MiB

_QUANTITIES = [
    ("latency_p50", "s"),
    ("throughput", "/s"),
    ("latency_p90", "s"),
    ("top1", "fraction"),
]


def measure_changes() -> Iterator[Row]:
    """Yield seconds and memory of the first search for changes, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        address = Path(folder) / "history.sqlite"
        _fill(address)
        command = [sys.executable, __file__, str(address)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    seconds, memory = map(float, done.stdout.split())
    title = f"changes: {SERIES:,} series of {NIGHTS} points"
    yield Row(f"{title}, seconds", seconds, SECONDS)
    yield Row(f"{title}, MiB", memory, MEMORY)


def _fill(address: Path) -> None:
    rng = np.random.default_rng(1)
    with writing(open_history(address)) as connection:
        insert_rows(connection, _runs())
        insert_rows(connection, _series())
        for night in range(NIGHTS):
            insert_rows(connection, _points(night, rng))


def _runs() -> Rows:
    rows = Rows(schema.run, ("id", "started", "machine_class"))
    for night in range(NIGHTS):
        rows.values.append((run_name(night), f"2026-{night:04}", "vm"))
    return rows


def _series() -> Rows:
    columns = ("id", "key", "name", "parts", "quantity", "unit", "better", "control")
    rows = Rows(schema.series, columns)
    for number in range(SERIES):
        quantity, unit = _QUANTITIES[number % len(_QUANTITIES)]
        name = f"model-{number}"
        rows.values.append((number, name, name, "{}", quantity, unit, "lower", False))
    return rows


def _points(night: int, rng: np.random.Generator) -> Rows:
    values = np.exp(rng.normal(0, 0.02, SERIES)) / 2
    values[3 :: len(_QUANTITIES)] = 0.97
    if night >= STEP_AT:
        values[::10] *= 1.08
    columns = ("series", "run", "number", "started", "value", "verdict")
    rows = Rows(schema.point, columns)
    run = run_name(night)
    for number, value in enumerate(values.tolist()):
        rows.values.append((number, run, number, f"2026-{night:04}", value, "PASSED"))
    return rows


def _search(address: str) -> None:
    """Search once, and print the seconds and the most memory of this process, in MiB."""
    import time

    from pytest_mlms.keep.history.change_scan import scan

    history = open_history(address)
    began = time.perf_counter()
    scanned = scan(history)
    seconds = time.perf_counter() - began
    assert scanned.searched == SERIES, scanned
    assert SERIES // 20 <= scanned.found <= SERIES // 5, scanned
    print(seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


if __name__ == "__main__":
    _search(sys.argv[1])
