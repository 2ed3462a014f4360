"""Runs of pytest: what collection, an item, and an unused plugin cost."""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, NamedTuple

from bench_row import DIGITS, ROOT, Row

MANIFESTS = 1000
COLLECTIONS = 7
ITEM_RUNS = 3
IDLE_RUNS = 31

# Runs pytest with the arguments that follow, and prints the fields of PytestRun but the first.
PYTEST = """
import resource, sys, time, pytest
status = pytest.main(sys.argv[1:])
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(time.process_time(), peak, len(sys.modules), file=sys.stderr)
sys.exit(status)
"""

WITHOUT_OTHERS = [
    f"-pno:{plugin.name}" for plugin in entry_points(group="pytest11") if plugin.name != "mlms"
]
"""Plugins that happen to be installed too would count on both sides."""

PLAIN_TESTS = """
import pytest

@pytest.mark.parametrize('n', range(COUNT))
def test_empty(n):
    pass
"""


class PytestRun(NamedTuple):
    """The duration of a run of pytest, its CPU time, its peak of memory, and its modules."""

    seconds: float
    cpu_seconds: float
    peak_bytes: int
    modules: int


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
    cpu_seconds, peak_bytes, modules = done.stderr.split()[-3:]
    return PytestRun(seconds, float(cpu_seconds), int(peak_bytes), int(modules))


class Side(NamedTuple):
    """The median of the CPU time of runs of pytest, their largest peak of memory, their modules."""

    cpu_seconds: float
    peak_bytes: int
    modules: int


def compare(folder: Path, rounds: int, sides: Mapping[str, Sequence[str]]) -> dict[str, Side]:
    """Run pytest with the arguments of each side in turns, with no plugin but ours."""
    runs: dict[str, list[PytestRun]] = {name: [] for name in sides}
    for arguments in sides.values():
        run_pytest(folder, *WITHOUT_OTHERS, *arguments)  # compiles what has not been compiled
    for _ in range(rounds):
        for name in random.sample(list(sides), len(sides)):
            runs[name].append(run_pytest(folder, *WITHOUT_OTHERS, *sides[name]))
    return {name: _side(found) for name, found in runs.items()}


def _side(runs: Sequence[PytestRun]) -> Side:
    cpu_seconds = statistics.median(run.cpu_seconds for run in runs)
    peak_bytes = max(run.peak_bytes for run in runs)
    return Side(cpu_seconds, peak_bytes, runs[0].modules)


def measure_collection() -> Iterator[Row]:
    """Collect 10,000 cases of 1,000 manifests, and plain tests of one file and of 1,000 files."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_manifests(folder / "manifests")
        (folder / "test_plain.py").write_text(PLAIN_TESTS.replace("COUNT", "10_000"))
        write_files(folder / "files")
        collect = ("--collect-only", "-q", "--import-mode=importlib")
        sides = compare(
            folder,
            COLLECTIONS,
            {
                "cases": [*collect, "--mlms-manifests=manifests"],
                "one file": [*collect, "test_plain.py"],
                "files": [*collect, "files"],
            },
        )
    cases = sides["cases"]
    ratio = cases.cpu_seconds / sides["one file"].cpu_seconds
    yield Row("CPU time of collecting 10,000 cases / plain parametrized tests", ratio, 4)
    ratio = cases.cpu_seconds / sides["files"].cpu_seconds
    yield Row("the same / plain parametrized tests of as many files", ratio, 4)
    yield Row("its peak memory in MB", cases.peak_bytes / 1e6, 200)


def write_manifests(folder: Path) -> None:
    """Write copies of the digits manifest with more batch sizes and one scenario."""
    text = (DIGITS / "digits.yaml").read_text()
    text = text.replace("[1, 8, 64]", "[1, 2, 4, 8, 16, 32, 64, 128, 256]")
    text = text.replace("scenarios: [single_stream, offline]", "scenarios: [single_stream]")
    for number in range(MANIFESTS):
        path = _numbered(folder, number, "m{:04}.yaml")
        path.write_text(text)


def write_files(folder: Path) -> None:
    """Write as many files of tests as there are manifests, with 10 tests each."""
    text = PLAIN_TESTS.replace("COUNT", "10")
    for number in range(MANIFESTS):
        path = _numbered(folder, number, "test_{:04}.py")
        path.write_text(text)


def _numbered(folder: Path, number: int, name: str) -> Path:
    """Return the path of a file in one of ten folders, which is made."""
    part = folder / f"{number // 100:02}"
    part.mkdir(parents=True, exist_ok=True)
    return part / name.format(number)


def measure_item() -> Iterator[Row]:
    """Measure what a performance item takes beside starting agents, loading, and the loop."""
    costs = []
    for _ in range(ITEM_RUNS):
        costs += [fixed_cost(item) for item in performance_items()]
    milliseconds = 1000 * statistics.median(costs)
    yield Row("fixed cost of a performance item in ms, median", milliseconds, 50)


def performance_items() -> list[dict[str, Any]]:
    """Run the performance items of digits; return their results."""
    with tempfile.TemporaryDirectory() as results:
        run_pytest(
            ROOT,
            f"--mlms-manifests={DIGITS}",
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
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "test_one.py").write_text("def test_one():\n    pass\n")
        sides = compare(folder, IDLE_RUNS, {"with": [], "without": ["-p", "no:mlms"]})
    added = sides["with"].cpu_seconds - sides["without"].cpu_seconds
    yield Row("CPU time added to a run without manifests in ms", 1000 * added, 10)
    modules = sides["with"].modules - sides["without"].modules
    yield Row("modules that it imports", modules, 20)
