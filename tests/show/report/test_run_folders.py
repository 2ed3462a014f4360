"""Folders of runs: locks, and removal of old ones."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_mlms.show.report.run_folders import RunInUse, RunLock, remove_old_runs
from tests.support.project import Project


def test_a_lock_is_free_again_after_its_release(tmp_path: Path) -> None:
    lock = RunLock(tmp_path)
    assert lock.acquire()
    lock.release()
    assert RunLock(tmp_path).acquire()


def test_a_lock_that_is_held_names_its_holder(tmp_path: Path) -> None:
    lock = RunLock(tmp_path)
    lock.acquire()
    text = f"{tmp_path} is in use by process {os.getpid()} ("
    with pytest.raises(RunInUse, match=re.escape(text)):
        RunLock(tmp_path).acquire()


def test_a_folder_that_can_not_be_locked_has_no_holder(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("a file where the folder should be")
    assert not RunLock(tmp_path / "run").acquire()


HOLD = """
import sys, pathlib
from pytest_mlms.show.report.run_folders import RunLock
lock = RunLock(pathlib.Path(sys.argv[1]))
assert lock.acquire()
print("held", flush=True)
sys.stdin.read()
"""


def make_runs(results: Path, count: int) -> list[Path]:
    """Make runs with results, and return their folders from the oldest to the newest."""
    runs = []
    for second in range(count):
        run = results / f"20260101-0000{second:02}-abcdef"
        (run / "items").mkdir(parents=True)
        (run / "results.jsonl").write_text("{}")
        runs.append(run)
    return runs


def names(results: Path) -> list[str]:
    return sorted(path.name for path in results.iterdir())


def test_the_last_runs_are_kept(tmp_path: Path) -> None:
    runs = make_runs(tmp_path, 5)
    assert remove_old_runs(tmp_path, 2) == 3
    assert names(tmp_path) == [run.name for run in runs[3:]]
    assert remove_old_runs(tmp_path, 2) == 0


def test_runs_with_a_name_are_kept_and_do_not_count(tmp_path: Path) -> None:
    first, second, third = make_runs(tmp_path, 3)
    first.rename(tmp_path / "before-the-upgrade")
    (tmp_path / "baseline").symlink_to(second.name)
    (tmp_path / "latest").symlink_to(third.name)
    assert remove_old_runs(tmp_path, 1) == 0
    assert names(tmp_path) == [second.name, third.name, "baseline", "before-the-upgrade", "latest"]


def test_a_run_that_another_session_uses_is_kept(tmp_path: Path) -> None:
    first, _, third = make_runs(tmp_path, 3)
    command = [sys.executable, "-c", HOLD, str(first)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as session:
        assert session.stdout is not None
        assert session.stdout.readline() == "held\n"
        assert remove_old_runs(tmp_path, 1) == 1
        assert names(tmp_path) == [first.name, third.name]
        session.communicate()
    assert remove_old_runs(tmp_path, 1) == 1


def test_folders_that_are_no_runs_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "20260101-000000-abcdef").mkdir()
    (tmp_path / "pictures").mkdir()
    make_runs(tmp_path, 0)
    assert remove_old_runs(tmp_path, 1) == 0
    assert len(names(tmp_path)) == 2


def test_what_a_killed_session_left_of_a_removal_is_removed(tmp_path: Path) -> None:
    (tmp_path / ".removed-20260101-000000-abcdef" / "items").mkdir(parents=True)
    remove_old_runs(tmp_path, 1)
    assert names(tmp_path) == []


def test_a_folder_that_is_not_there_has_no_runs(tmp_path: Path) -> None:
    assert remove_old_runs(tmp_path / "none", 1) == 0


def test_a_run_removes_old_runs_and_says_so(project: Project) -> None:
    project.use_faulty()
    make_runs(project.path / "mlms-results", 3)
    result = project.run("-k", "accuracy", "--mlms-keep=2")
    result.stdout.fnmatch_lines(["mlms: removed * old runs of *; the last 2 stay (--mlms-keep)"])
    assert len(list((project.path / "mlms-results").glob("2*"))) == 2
    assert project.items()
