"""The report of large runs: its time, its size, and its memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from bench_row import ROOT, Row

SIZES = ((1_000, 5.0, 2.0), (10_000, 30.0, None))
"""Items, seconds of the CPU at most, and megabytes of the file at most."""

MOST_GIB = 1.0
FAILING = 0.05  # of the items
PROCESSES = 3
CALLS = 10_000


def measure_report() -> Iterator[Row]:
    """Measure ``mlms report`` in a process of its own, from lines and samples of real sizes."""
    for items, seconds, megabytes in SIZES:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            _write_run(folder, items)
            yield from _rows(folder, items, seconds, megabytes)


def _rows(folder: Path, items: int, seconds: float, megabytes: float | None) -> Iterator[Row]:
    out = folder / "report.html"
    command = [sys.executable, "-m", "pytest_mlms", "report", str(folder)]
    child = subprocess.Popen([*command, "--out", str(out)], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    elapsed = usage.ru_utime + usage.ru_stime
    if status:
        raise RuntimeError(f"mlms report ended with status {status}")
    yield Row(f"report of {items:,} items: CPU seconds", elapsed, seconds)
    yield Row(f"report of {items:,} items: peak memory, GiB", usage.ru_maxrss / 2**20, MOST_GIB)
    if megabytes is not None:
        size = out.stat().st_size / 1e6
        yield Row(f"report of {items:,} items: size, MB", size, megabytes)


def _write_run(folder: Path, items: int) -> None:
    """Write the lines of a run, whose items share the samples of three processes."""
    sys.path.insert(0, str(ROOT))  # for tests
    from tests.support.histories import item_line

    generator = np.random.default_rng(0)
    artifacts = {}
    for process in range(PROCESSES):
        name = f"samples-{process}.npz"
        start = np.arange(float(CALLS))
        end = start + 1e-3 * np.exp(generator.normal(0, 0.1, CALLS))
        np.savez(folder / name, start=start, end=end)
        artifacts[name] = name
    with (folder / "results.jsonl").open("w") as file:
        for number in range(items):
            verdict = "FAILED" if number < FAILING * items else "PASSED"
            line = item_line(1, number, verdict=verdict, artifacts=artifacts)
            file.write(json.dumps(line) + "\n")
