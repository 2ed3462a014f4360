"""Runs on several workers: the scheduler's cost, how busy workers are, files that come back."""

from __future__ import annotations

import shutil
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench_row import DIGITS, Row, in_random_order
from bench_runs import PytestRun, run_pytest

RUNS = 3
FILES = 10_000  # items that keep a file each

TESTS = """
import os, time, pytest

one_case = pytest.mark.mlms(manifest="manifests/digits.yaml")
DATA = os.urandom(100_000)

@one_case
@pytest.mark.parametrize("n", range(10_000))
def test_empty(mlms_case, n):
    pass

@one_case
@pytest.mark.parametrize("n", range(40))
def test_sleep(mlms_case, n):
    with open(os.environ["BENCH_SPANS"], "a") as file:
        start = time.monotonic()
        time.sleep(0.25)
        file.write(f"{start} {time.monotonic()}\\n")

@one_case
@pytest.mark.parametrize("n", range(10_000))
def test_keep(mlms_recorder, n):
    mlms_recorder.keep("data.bin", lambda path: path.write_bytes(DATA) and None)
"""


class Project:
    """A folder with the digits manifest, reduced to one framework, and the tests."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.spans = folder / "spans"
        shutil.copytree(DIGITS, folder / "manifests")
        manifest = folder / "manifests" / "digits.yaml"
        manifest.write_text(with_one_model(manifest.read_text()))
        (folder / "pytest.ini").write_text("[pytest]\n")
        (folder / "test_fleet.py").write_text(TESTS)

    def run(self, test: str, *arguments: str) -> PytestRun:
        """Run the items of one test."""
        env = {
            "BENCH_SPANS": str(self.spans),
            "MLMS_LOCKS": str(self.folder / "locks"),
            "MLMS_CACHE": str(self.folder / "cache"),
        }
        common = ["--mlms-manifests=manifests", "test_fleet.py", "-q", "-k", test]
        return run_pytest(self.folder, *common, *arguments, env=env)


def with_one_model(text: str) -> str:
    """Return a manifest with the first of its models only."""
    models = text[text.index("models:") : text.index("\ninputs:")]
    first = "  - framework:".join(models.split("  - framework:")[:2])
    return text.replace(models, first)


def measure_fleet() -> Iterator[Row]:
    """Measure all three in one folder."""
    with tempfile.TemporaryDirectory() as temporary:
        project = Project(Path(temporary))
        yield measure_scheduler(project)
        yield measure_idle_workers(project)
        yield from measure_returned_files(project)


def measure_scheduler(project: Project) -> Row:
    """Compare empty items with our scheduler and with xdist's own."""
    workers = ("-n4", "--dist=load")

    def run_ours() -> float:
        return project.run("test_empty", *workers).seconds

    def run_theirs() -> float:
        return project.run("test_empty", *workers, "-p", "no:mlms-fleet").seconds

    ratios = []
    for _ in range(RUNS):
        seconds = in_random_order({"ours": run_ours, "theirs": run_theirs})
        ratios.append(seconds["ours"] / seconds["theirs"])
    name = "10,000 empty items on 4 workers / with xdist's scheduler"
    return Row(name, statistics.median(ratios), 1.3)


def measure_idle_workers(project: Project) -> Row:
    """Measure the share of the time, from the first item to the last, that two workers idle."""
    project.run("test_sleep", "-n2")
    starts = []
    ends = []
    for line in project.spans.read_text().splitlines():
        start, end = line.split()
        starts.append(float(start))
        ends.append(float(end))
    asleep = sum(ends) - sum(starts)
    busy = asleep / 2 / (max(ends) - min(starts))
    return Row("share of the time that 2 workers idle, 40 sleeping items", 1 - busy, 0.1)


def measure_returned_files(project: Project) -> Iterator[Row]:
    """Measure the memory of the controller while workers elsewhere return files."""
    elsewhere = f"--tx=2*popen//chdir={project.folder / 'elsewhere'}"
    run = project.run("test_keep", elsewhere, "--dist=load")
    items = project.folder / "mlms-results" / "latest" / "items"
    kept = len(list(items.glob("*/data.bin")))
    gigabytes = run.peak_bytes / 1e9
    yield Row("controller's peak, 10,000 items return 100 kB each, in GB", gigabytes, 0.5)
    yield Row("of those files, how many did not come back", FILES - kept, 0)
