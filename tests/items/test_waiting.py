"""Tests of what a run tells of the waits of its items."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.project import HANG_GUARD, QUICK, Project

HOLD = """
import sys, time
from pathlib import Path
from pytest_mlms.provide.host.locks import exclusive
with exclusive("cpu", 300, Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(3600)
"""

SLOW_IMPORT = """
import os, time
while not os.path.exists({go!r}):
    time.sleep(0.05)
__import__("a_framework_that_nobody_has")
"""


class Run:
    """A run of a project's accuracy item whose output goes to a file, as in a CI job."""

    def __init__(self, project: Project, *arguments: str) -> None:
        self._log = project.path / "log.txt"
        options = ["--mlms-manifests=manifests", *QUICK, "-k", "accuracy", *arguments]
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "pytest", *options],
                cwd=project.path,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def wait_for(self, text: str) -> str:
        """Return the first line of the output that has a text, once it is there."""
        end = time.monotonic() + HANG_GUARD
        while time.monotonic() < end:
            for line in self._log.read_text().splitlines():
                if text in line:
                    return line
            assert self._process.poll() is None, self._log.read_text()
            time.sleep(0.1)
        raise AssertionError(self._log.read_text())

    def finish(self) -> int:
        """Return the exit status."""
        return self._process.wait(HANG_GUARD)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "prefix"), [((), ""), (("-n1",), "[gw0] ")], ids=["alone", "worker"]
)
def test_a_run_tells_which_process_holds_its_device(
    project: Project, tmp_path: Path, arguments: tuple[str, ...], prefix: str
) -> None:
    command = [sys.executable, "-c", HOLD, str(tmp_path / "locks")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout
        assert holder.stdout.readline() == "held\n"
        run = Run(project, *arguments)
        line = run.wait_for("mlms: waiting")
        holder.kill()
    expected = f"{prefix}mlms: waiting for device cpu, which process {holder.pid} ("
    assert line.startswith(expected)
    assert run.finish() == 0


def test_a_run_tells_that_an_agent_imports_its_framework(project: Project) -> None:
    go = project.path / "go"
    folder = project.path / "predictors"
    folder.mkdir()
    (folder / "slow.py").write_text(SLOW_IMPORT.format(go=str(go)))
    project.use_faulty()
    project.edit("framework: faulty", "framework: slow")
    run = Run(project, f"--mlms-predictors={folder}")
    line = run.wait_for("mlms: waiting")
    go.touch()
    assert line.startswith("mlms: waiting for slow to be imported in stack here (")
    assert run.finish() == 1, "nothing was measured, as the predictor can't be imported"
