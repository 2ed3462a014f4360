"""Runs of many items, from their collection to their report and their pages: memory by the item."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest

from tests.support.portals import serving
from tests.support.project import HANG_GUARD, Project

FEW, MANY = 300, 1200
MOST = 64  # KiB for a further item, so that 10,000 take less than a GiB
BATCHES = 100  # items of a manifest
COMMAND = """
import resource, runpy, sys
sys.argv = sys.argv[1:]
try:
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
finally:
    print("peak", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)
"""
PAGES = ("/runs", "/runs/{run}", "/stacks", "/models", "/api/v1/runs/{run}")


class Peaks(NamedTuple):
    """The most KiB that each step took."""

    run: int
    report: int
    portal: int


def peak_of(folder: Path, *command: str) -> int:
    """Run a module; return its peak of memory in KiB."""
    done = subprocess.run(
        [sys.executable, "-c", COMMAND, *command],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=HANG_GUARD,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert "Traceback" not in done.stdout + done.stderr
    return int(done.stderr.split()[-1])


def peaks_with(project: Project, items: int, text: str) -> Peaks:
    """Run so many items, of ``items / BATCHES`` manifests, and show them."""
    for number in range(items // BATCHES):
        (project.folder / f"m{number}.yaml").write_text(text)
    options = ("-p", "no:cacheprovider", "-q", "-k", "performance", "--mlms-manifests=manifests")
    run = peak_of(project.path, "pytest", *options, "--mlms-report=report.html")
    assert (project.results / "results.jsonl").read_text().count('"type": "item"') == items
    report = ("report", str(project.results), "--out=again.html")
    reporting = peak_of(project.path, "pytest_mlms", *report)
    with serving(project.results.parent, token=None) as portal:
        name = os.path.basename(os.path.realpath(project.results))
        for path in PAGES:
            assert portal.get(path.format(run=name)).status == 200, path
        serving_bytes = psutil.Process(portal.process.pid).memory_info().rss
        assert portal.end()[2] == ""
    return Peaks(run, reporting, serving_bytes >> 10)


@pytest.mark.slow
def test_the_memory_of_many_items_is_bounded_by_the_item(project: Project) -> None:
    """They ask for a host of more memory than there is, so that each of them is skipped."""
    project.set_thresholds()
    project.edit("[1, 8, 64]", str(list(range(1, BATCHES + 1))))
    project.edit("[single_stream, offline]", "[single_stream]")
    text = project.manifest.read_text() + "hardware: {memory: '>= 1000000 GiB'}\n"
    project.manifest.unlink()
    few, many = (peaks_with(project, items, text) for items in (FEW, MANY))
    of_an_item = [(b - a) / (MANY - FEW) for a, b in zip(few, many, strict=True)]
    assert max(of_an_item) < MOST, (few, many)
