"""Sessions of pytest that commands run: they end with the command, however that ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from pytest_mlms.core.child_session import ChildOptions, run_child
from tests.support.histories import run_name, write_run
from tests.support.project import HANG_GUARD, Project
from tests.support.waiting import wait_until

LONG_TEST = """\
import os, pathlib, signal

def test_that_waits():
    pathlib.Path("number.new").write_text(str(os.getpid()))
    os.rename("number.new", "number")
    try:
        while True:
            signal.pause()
    finally:
        pathlib.Path("interrupted").touch()
"""
COMMAND = """\
from pathlib import Path
from pytest_mlms.core.child_session import ChildOptions, run_child
options = ChildOptions(Path("results"), Path("cache"))
run_child(["-p", "no:cacheprovider", "test_long.py"], options, "marker")
"""

READS_USES = """\
from pytest_mlms.config import Config

def test_one(request):
    found = Config.from_pytest(request.config)
    uses = [found.history, found.push, found.report, found.metrics]
    assert uses == [None] * 4, uses
"""


def start(folder: Path, *before: str) -> tuple[subprocess.Popen[bytes], psutil.Process]:
    """Start a command whose session waits for ever; return it and the session."""
    (folder / "test_long.py").write_text(LONG_TEST)
    number = folder / "number"
    environment = {**os.environ, "PYTEST_ADDOPTS": "-p no:hypothesispytest"}
    words = [*before, sys.executable, "-c", COMMAND]
    command = subprocess.Popen(words, cwd=folder, env=environment, stderr=subprocess.DEVNULL)
    wait_until(number.exists)
    return command, psutil.Process(int(number.read_text()))


def has_ended(process: psutil.Process) -> bool:
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


needs_proc = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")


@pytest.fixture
def hangup_is_not_ignored() -> Iterator[None]:
    """Let children have SIGHUP's usual action, also where the tests run below nohup."""
    former = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, former)


@pytest.mark.usefixtures("hangup_is_not_ignored")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_a_session_is_interrupted_with_its_command(tmp_path: Path, number: signal.Signals) -> None:
    command, session = start(tmp_path)
    command.send_signal(number)
    command.wait(HANG_GUARD)
    wait_until(lambda: has_ended(session))
    assert (tmp_path / "interrupted").exists()


@needs_proc
def test_a_background_job_goes_on_after_a_hangup_and_ends_its_session(tmp_path: Path) -> None:
    command, session = start(tmp_path, "sh", "-c", 'trap "" INT HUP; exec "$@"', "sh")
    status = Path(f"/proc/{command.pid}/status").read_text()
    ignored = int(status.partition("SigIgn:")[2].split()[0], 16)
    assert ignored & (1 << signal.SIGHUP - 1)
    command.terminate()
    command.wait(HANG_GUARD)
    assert has_ended(session)
    assert (tmp_path / "interrupted").exists()


@pytest.mark.slow
@pytest.mark.parametrize("has_latest", [True, False])
def test_latest_stays_at_the_run_that_a_person_made(project: Project, has_latest: bool) -> None:
    results = project.path / "mlms-results"
    former = write_run(results, 0)
    latest = results / "latest"
    if has_latest:
        latest.symlink_to(former.name)
    words = [f"--mlms-manifests={project.folder}", "-ktest_accuracy", "-pno:cacheprovider"]
    options = ChildOptions(results, project.path / "cache")
    child = run_child(words, options, marker=str(project.folder))
    assert child.run is not None
    assert child.run.name != run_name(0)
    assert latest.resolve() == (former if has_latest else child.run)


def test_what_a_project_does_with_its_own_runs_is_not_done_with_those_of_a_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTEST_ADDOPTS", "--mlms-metrics=all.prom")
    settings = ["[pytest]", "mlms_history = team.sqlite", "addopts = --mlms-report=own.html"]
    Path("pytest.ini").write_text("\n".join([*settings, "mlms_push = http://127.0.0.1:9"]))
    Path("test_one.py").write_text(READS_USES)
    options = ChildOptions(Path("results"), Path("cache"))
    with Path("output.txt").open("wb") as output:
        done = run_child(["-q", "test_one.py"], options, "marker", output)
    text = Path("output.txt").read_text()
    assert done.status == 0, text
    assert "127.0.0.1" not in text
    assert not Path("team.sqlite").exists()
