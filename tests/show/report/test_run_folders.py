"""Folders of runs: locks, and removal of old ones."""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import func, select

from pytest_mlms.cli.main import main
from pytest_mlms.keep.history import schema, store
from pytest_mlms.keep.history.queue import queued_folders
from pytest_mlms.keep.history.store import open_history, open_to_read
from pytest_mlms.show.report.run_folders import RunInUse, RunLock, add_to_history, remove_old_runs
from tests.support.histories import run_name, write_run
from tests.support.postgresql import PASSWORD, Server
from tests.support.project import Project
from tests.support.small_disk import fill


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


AWAY = "postgresql+psycopg://joe:s3cret@127.0.0.1:1/history"
ONE = ("-k", "performance and b8-offline")


def points(address: str | Path) -> int:
    with open_to_read(address).connect() as connection:
        return connection.scalar(select(func.count()).select_from(schema.point)) or 0


def runs(address: str | Path) -> list[tuple[str, int | None]]:
    with open_to_read(address).connect() as connection:
        query = select(schema.run.c.id, schema.run.c.exit_status).order_by(schema.run.c.id)
        return [(row.id, row.exit_status) for row in connection.execute(query)]


def history_lines(output: list[str]) -> list[str]:
    return [line for line in output if "history:" in line]


def test_a_run_is_added_at_its_end_and_a_wrong_address_is_refused_at_its_start(
    project: Project,
) -> None:
    project.set_thresholds()
    result = project.run(*ONE, "--mlms-history")
    result.assert_outcomes(passed=1, deselected=6)
    file = project.path / "mlms-results" / "history.sqlite"
    assert 9 <= points(file) <= 12  # fast calls give tails, too
    assert history_lines(result.outlines) == [
        f"mlms: history: {points(file)} points added to {file}"
    ]
    assert runs(file) == [(project.results.resolve().name, 0)]
    assert (file.parent / ".gitignore").read_text() == "*\n"

    mistyped = project.run(*ONE, "--mlms-history=postgres//joe:s3cret@h/d")
    assert mistyped.ret == pytest.ExitCode.USAGE_ERROR
    problem = "the address of the history looks like a URL that lacks ://"
    mistyped.stderr.fnmatch_lines([f"ERROR: --mlms-history: {problem}; a history is a file*"])
    refused = project.run(*ONE, "--mlms-history=mysql://joe:s3cret@h/d")
    assert refused.ret == pytest.ExitCode.USAGE_ERROR
    refused.stderr.fnmatch_lines("*--mlms-history: mysql:// is no address of a history; *")
    refused.stderr.no_fnmatch_line("*s3cret*")


def test_a_history_that_is_away_costs_no_result_and_its_password_shows_nowhere(
    project: Project,
) -> None:
    project.set_thresholds()
    options = (f"--mlms-history={AWAY}", "--junitxml=junit.xml", "-vv", "--showlocals")
    result = project.run(*ONE, *options)
    result.assert_outcomes(passed=1, deselected=6)
    before, *after = history_lines(result.outlines)
    assert before.startswith("mlms: history: postgresql+psycopg://***@127.0.0.1:1/history: ")
    assert before.endswith("Connection refused; the run will be queued")
    assert "refused" in after[0]
    assert after[1].startswith("mlms: history: 1 run is queued; 'mlms history add' adds")
    results = project.path / "mlms-results"
    assert queued_folders(results) == {project.results.resolve().name}
    written = [path for path in project.path.rglob("*") if path.is_file()]
    assert len(written) > 5
    for path in written:
        assert b"s3cret" not in path.read_bytes(), path
    assert "s3cret" not in str(result.outlines) + str(result.errlines)


@pytest.mark.slow
def test_a_run_that_is_interrupted_is_added(project: Project) -> None:
    project.set_thresholds()
    project.pytester.makeconftest(
        "def pytest_runtest_logreport(report):\n"
        "    if report.when == 'teardown':\n"
        "        raise KeyboardInterrupt\n"
    )
    result = project.run("-k", "performance and b8", "--mlms-history=kept/history.sqlite")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    assert runs(project.path / "kept" / "history.sqlite") == [
        (project.results.resolve().name, int(pytest.ExitCode.INTERRUPTED))
    ]


@pytest.mark.slow
def test_with_xdist_the_controller_adds_the_run_once(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.set_thresholds()
    monkeypatch.setenv("MLMS_HISTORY", "team.sqlite")
    result = project.run("-k", "performance and offline", "-n2", "--mlms-history")
    file = project.path / "team.sqlite"
    assert 27 <= points(file) <= 36
    assert history_lines(result.outlines) == [
        f"mlms: history: {points(file)} points added to {file}"
    ]


@pytest.mark.slow
def test_a_server_that_stops_during_the_run_gets_it_with_the_next_one(
    project: Project, postgresql: Server
) -> None:
    project.set_thresholds()
    address = postgresql.database()
    (project.path / "conftest.py").write_text(
        "import os, signal\n"
        "def pytest_runtest_setup(item):\n"
        f"    os.kill({postgresql.pid}, signal.SIGINT)\n"
    )
    stopped = project.run(*ONE, f"--mlms-history={address}")
    stopped.assert_outcomes(passed=1, deselected=6)
    assert "1 run is queued" in history_lines(stopped.outlines)[-1]
    (project.path / "conftest.py").unlink()
    postgresql.wait()
    postgresql.start()
    result = project.run(*ONE, f"--mlms-history={address}")
    count = points(address)
    assert 18 <= count <= 24
    told = history_lines(result.outlines)[0]
    assert told.startswith(f"mlms: history: {count} points of 2 runs added")
    for path in project.path.rglob("*"):
        assert not path.is_file() or PASSWORD.encode() not in path.read_bytes(), path


def queue_a_run(results: Path) -> Path:
    """Queue a run for a history whose file is damaged; return that file."""
    file = results / "history.sqlite"
    results.mkdir()
    file.write_bytes(b"damaged")
    outcome = add_to_history(str(file), results, write_run(results, 0))
    assert outcome.lines == ()
    assert "damaged" in outcome.notes[0]
    assert "1 run is queued" in outcome.notes[1]
    return file


def test_the_next_run_adds_what_is_queued(tmp_path: Path) -> None:
    results = tmp_path / "results"
    file = queue_a_run(results)
    file.unlink()
    outcome = add_to_history(str(file), results, write_run(results, 1))
    assert outcome.lines == (f"history: 18 points of 2 runs added to {file}",)
    assert outcome.notes == ()
    assert queued_folders(results) == set()


def test_the_command_adds_what_is_queued_and_tells_of_other_histories(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = tmp_path / "results"
    file = queue_a_run(results)
    add = ["history", "add", "--results", str(results), "--history"]
    assert main([*add, str(file)]) == 1
    assert "damaged" in capsys.readouterr().err
    assert main([*add, str(tmp_path / "other.sqlite")]) == 0
    assert f"{run_name(0)} is queued for {file}" in capsys.readouterr().out
    file.unlink()
    assert main([*add, str(file)]) == 0
    assert capsys.readouterr().out == f"{run_name(0)}: 3 lines added, 9 points\n"


def test_old_runs_that_are_queued_are_not_removed(tmp_path: Path) -> None:
    results = tmp_path / "results"
    file = queue_a_run(results)
    for night in range(1, 4):
        write_run(results, night)
    assert remove_old_runs(results, keep=1) == 2
    assert (results / run_name(0)).is_dir()
    file.unlink()
    add_to_history(str(file), results, results / run_name(3))
    assert remove_old_runs(results, keep=1) == 1
    assert points(file) == 18


def test_a_queued_run_that_was_removed_leaves_the_queue(tmp_path: Path) -> None:
    results = tmp_path / "results"
    file = queue_a_run(results)
    file.unlink()
    (results / run_name(0) / "results.jsonl").unlink()
    (results / run_name(0)).rmdir()
    outcome = add_to_history(str(file), results, write_run(results, 1))
    assert outcome.lines == (f"history: 9 points added to {file}",)
    assert queued_folders(results) == set()


def test_a_run_that_is_refused_is_told_once_and_tried_again_by_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = tmp_path / "results"
    file = tmp_path / "history.sqlite"
    run = write_run(results, 0)
    lines = (run / "results.jsonl").read_text()
    (run / "results.jsonl").write_text(lines.replace('"format": 1', '"format": 9'))
    refused = add_to_history(str(file), results, run)
    assert "format 9" in refused.notes[0]
    assert refused.notes[1].startswith("history: 1 run is set aside; mend what is wrong")
    assert add_to_history(str(file), results, write_run(results, 1)).notes == ()
    assert queued_folders(results) == {run.name}

    add = ["history", "add", "--results", str(results), "--history", str(file)]
    assert main(add) == 1
    assert "format 9" in capsys.readouterr().err
    (run / "results.jsonl").write_text(lines)
    assert main(add) == 0
    assert queued_folders(results) == set()
    assert points(file) == 18


def test_a_history_that_another_writer_has_locked_is_added_to_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "_BUSY_SECONDS", 0.1)
    results = tmp_path / "results"
    file = tmp_path / "history.sqlite"
    run = write_run(results, 0)
    open_history(file).dispose()
    with sqlite3.connect(file, isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        outcome = add_to_history(str(file), results, run)
        assert "another process writes to the history" in outcome.notes[0]
        other.execute("ROLLBACK")
    assert add_to_history(str(file), results, run).lines != ()
    assert points(file) == 9


def test_a_history_on_a_full_disk_is_added_to_later(tmp_path: Path, small_disk: Path) -> None:
    results = tmp_path / "results"
    file = small_disk / "history.sqlite"
    filler = fill(small_disk)
    outcome = add_to_history(str(file), results, write_run(results, 0))
    assert outcome.lines == ()
    assert "queued" in outcome.notes[-1]
    filler.unlink()
    large = add_to_history(str(file), results, write_run(results, 1, items=50))
    assert "full" in large.notes[0]
    assert queued_folders(results) == {run_name(0), run_name(1)}


def test_a_queue_on_a_full_disk_is_told_with_the_command_that_adds_the_run(
    tmp_path: Path, small_disk: Path
) -> None:
    run = write_run(small_disk, 0)
    fill(small_disk)
    file = tmp_path / "history.sqlite"
    outcome = add_to_history(str(file), small_disk, run)
    assert f"mlms history add {run}" in outcome.notes[0]
    assert "No space left" in outcome.notes[0]
