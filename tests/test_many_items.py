"""A run of 10,000 items, from its collection to its report and its pages, in bounded memory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.support.portals import serving
from tests.support.project import HANG_GUARD, Project

ITEMS = 10_000
MANIFESTS = 40
COMMAND = """
import resource, runpy, sys
sys.argv = sys.argv[1:]
try:
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
finally:
    print("peak", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10, file=sys.stderr)
"""


def run(folder: Path, *command: str) -> tuple[int, str]:
    """Run a module; return its peak of memory in MiB, and what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", COMMAND, *command],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=HANG_GUARD,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert "Traceback" not in done.stdout + done.stderr
    return int(done.stderr.split()[-1]), done.stdout


@pytest.mark.slow
def test_ten_thousand_items_are_run_reported_and_shown(project: Project) -> None:
    """They ask for a host of more memory than there is, so that each of them is skipped."""
    batches = ITEMS // MANIFESTS
    project.set_thresholds()
    project.edit("[1, 8, 64]", str(list(range(1, batches + 1))))
    project.edit("[single_stream, offline]", "[single_stream]")
    text = project.manifest.read_text() + "hardware: {memory: '>= 1000000 GiB'}\n"
    project.manifest.unlink()
    for number in range(MANIFESTS):
        (project.folder / f"m{number}.yaml").write_text(text)
    plugins = ("-p", "no:cacheprovider")
    options = (*plugins, "-q", "-k", "performance", "--mlms-manifests=manifests")
    peak, output = run(project.path, "pytest", *options, "--mlms-report=report.html")
    assert f"{ITEMS:,}" in output or str(ITEMS) in output, output[-2000:]
    assert peak < 1024
    assert (project.results / "results.jsonl").read_text().count('"type": "item"') == ITEMS
    peak, _ = run(project.path, "pytest_mlms", "report", str(project.results), "--out=again.html")
    assert peak < 1024
    with serving(project.results.parent, token=None) as portal:
        name = os.path.basename(os.path.realpath(project.results))
        for path in ("/runs", f"/runs/{name}", "/stacks", "/models", f"/api/v1/runs/{name}"):
            assert portal.get(path).status == 200, path
        assert psutil.Process(portal.process.pid).memory_info().rss < 1 << 30
        _, _, errors = portal.end()
    assert errors == ""
