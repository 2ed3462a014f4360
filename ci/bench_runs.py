"""Runs of pytest: what collection, an item, and an unused plugin cost."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from bench_row import DIGITS, ROOT, Row, in_random_order

MANIFESTS = 1000
COLLECTIONS = 5
ITEM_RUNS = 3
IDLE_RUNS = 31

# Runs pytest with the arguments that follow, and prints its peak of memory in bytes.
PYTEST = """
import resource, sys, pytest
status = pytest.main(sys.argv[1:])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, file=sys.stderr)
sys.exit(status)
"""

PLAIN_TESTS = """
import pytest

@pytest.mark.parametrize('n', range(10_000))
def test_empty(n):
    pass
"""


class PytestRun(NamedTuple):
    """The duration and the peak of memory of a run of pytest."""

    seconds: float
    peak_bytes: int


def run_pytest(folder: Path, *arguments: str, env: Mapping[str, str] | None = None) -> PytestRun:
    """Run pytest in ``folder``, with ``env`` added to the environment."""
    environment = {**os.environ, **(env or {})}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", PYTEST, *arguments, "-p", "no:cacheprovider"],
        cwd=folder,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=True,
    )
    seconds = time.perf_counter() - began
    return PytestRun(seconds, int(done.stderr.split()[-1]))


def measure_collection() -> Iterator[Row]:
    """Collect 10,000 cases of 1,000 manifests, and 10,000 parametrized empty tests of one file."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_manifests(folder / "manifests")
        (folder / "test_plain.py").write_text(PLAIN_TESTS)
        ratios = []
        peak = 0
        for _ in range(COLLECTIONS):
            plain = run_pytest(folder, "--collect-only", "-q", "test_plain.py")
            ours = run_pytest(folder, "--collect-only", "-q", "--mlms-manifests=manifests")
            ratios.append(ours.seconds / plain.seconds)
            peak = max(peak, ours.peak_bytes)
    ratio = statistics.median(ratios)
    yield Row("collection of 10,000 cases / plain parametrized tests", ratio, 10)
    yield Row("its peak memory in GiB", peak / 2**30, 1)


def write_manifests(folder: Path) -> None:
    """Write copies of the digits manifest with more batch sizes and one scenario."""
    text = (DIGITS / "digits.yaml").read_text()
    text = text.replace("[1, 8, 64]", "[1, 2, 4, 8, 16, 32, 64, 128, 256]")
    text = text.replace("scenarios: [single_stream, offline]", "scenarios: [single_stream]")
    for number in range(MANIFESTS):
        part = folder / f"{number // 100:02}"
        part.mkdir(parents=True, exist_ok=True)
        (part / f"m{number:04}.yaml").write_text(text)


def measure_item() -> Iterator[Row]:
    """Measure what a performance item takes beside starting agents, loading, and the loop."""
    costs = []
    for _ in range(ITEM_RUNS):
        costs += [fixed_cost(item) for item in performance_items()]
    milliseconds = 1000 * statistics.median(costs)
    yield Row("fixed cost of a performance item in ms, median", milliseconds, 50)


def performance_items() -> list[dict[str, Any]]:
    """Run the performance items of this repository; return their results."""
    with tempfile.TemporaryDirectory() as results:
        run_pytest(
            ROOT,
            f"--mlms-manifests={ROOT / 'manifests'}",
            "-k",
            "performance",
            f"--mlms-results={results}",
            "--mlms-processes=1",
            "--mlms-duration=0.2",
        )
        text = (Path(results) / "latest" / "results.jsonl").read_text()
    records = [json.loads(line) for line in text.splitlines()]
    return [record for record in records if record["type"] == "item"]


def fixed_cost(item: dict[str, Any]) -> float:
    """Return the seconds of an item that its processes do not explain."""
    measured = 0.0
    for process in item["processes"]:
        measured += process["start_seconds"]
        measured += process["load_seconds"]
        measured += process["loop_seconds"]
    seconds = item["seconds"]
    return float(seconds["setup"] + seconds["call"] - measured)


def measure_idle() -> Iterator[Row]:
    """Measure what the plugin adds to a pytest run that does not use it."""
    # Other plugins that are slow to import are noise on both sides.
    others = ("-p", "no:hypothesispytest", "-p", "no:benchmark")
    added = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "test_one.py").write_text("def test_one():\n    pass\n")
        run_pytest(folder)  # compiles what has not been compiled

        def run_with() -> float:
            return run_pytest(folder, *others).seconds

        def run_without() -> float:
            return run_pytest(folder, *others, "-p", "no:mlms").seconds

        for _ in range(IDLE_RUNS):
            seconds = in_random_order({"with": run_with, "without": run_without})
            added.append(seconds["with"] - seconds["without"])
    milliseconds = 1000 * statistics.median(added)
    yield Row("added to a run without manifests in ms, median", milliseconds, 20)
