"""Tests of the results file, also on a disk that is full."""

from __future__ import annotations

import errno
import functools
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from pytest_mlms.show.report import results
from pytest_mlms.show.report.results import ResultsFile
from tests.support.small_disk import fill

APPENDS_FOR_EVER = """
import itertools, pathlib, sys
from pytest_mlms.show.report.results import ResultsFile

file = ResultsFile(pathlib.Path(sys.argv[1]))
for number in itertools.count():
    file.append({"number": number, "text": "x" * 20_000})
    print(number, flush=True)
"""


def lines_of(file: ResultsFile) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.path.read_text().splitlines()]


def test_the_lines_of_the_run_come_before_and_after_those_of_items(tmp_path: Path) -> None:
    file = ResultsFile(tmp_path / "run")
    file.append({"nodeid": "first"})
    file.append({"nodeid": "second"})
    file.note("sides", {"case": "b8"})
    file.finish(1)
    run, first, second, sides, end = lines_of(file)
    assert [run["type"], first["type"], second["type"], sides["type"]] == [
        "run",
        "item",
        "item",
        "sides",
    ]
    assert {"command", "python", "plugin"} <= set(run)
    assert (end["type"], end["exit_status"], end["items"]) == ("end", 1, 2)
    assert {line["run"] for line in lines_of(file)} == {"run"}


def test_a_run_without_items_has_no_file(tmp_path: Path) -> None:
    file = ResultsFile(tmp_path / "run")
    file.finish(0)
    assert not file.path.exists()


def test_a_resumed_run_begins_behind_the_last_whole_line(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    path.write_text('{"nodeid": "first"}\n{"nodeid": "sec')
    file = ResultsFile(tmp_path)
    file.resume()
    file.append({"nodeid": "third"})
    assert [line.get("nodeid") for line in lines_of(file)] == ["first", None, "third"]


def test_a_last_line_that_lacks_only_its_end_is_kept(tmp_path: Path) -> None:
    (tmp_path / "results.jsonl").write_text('{"nodeid": "first"}\n{"nodeid": "second"}')
    file = ResultsFile(tmp_path)
    file.resume()
    file.append({"nodeid": "third"})
    assert [line.get("nodeid") for line in lines_of(file)] == ["first", "second", None, "third"]


NODEIDS = [None, "first", "second", "third"]


class InterruptAt:
    """Presses Ctrl-C at a line of the module under test, counted in the order in which they run."""

    def __init__(self, step: int) -> None:
        self.steps_left = step

    def trace(self, frame: FrameType, event: str, argument: object) -> Any:
        if frame.f_code.co_filename != results.__file__:
            return None
        if event == "line":
            self.steps_left -= 1
            if self.steps_left == 0:
                raise KeyboardInterrupt
        return self.trace


def is_interrupted(action: Callable[[], None], step: int) -> bool:
    """Return whether the action had that many steps."""
    before = sys.gettrace()
    sys.settrace(InterruptAt(step).trace)
    try:
        action()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


def test_ctrl_c_at_any_time_neither_loses_nor_repeats_a_line(tmp_path: Path) -> None:
    step = 0
    were_interrupted = True
    while were_interrupted:
        step += 1
        file = ResultsFile(tmp_path / str(step))
        file.append({"nodeid": "first"})
        second = {"nodeid": "second"}
        append = functools.partial(file.append, second)
        were_interrupted = is_interrupted(append, step)
        if not file.has(second):
            file.append(second)
        file.append({"nodeid": "third"})
        file.finish(2)
        assert [line.get("nodeid") for line in lines_of(file)] == [*NODEIDS, None], step
        assert lines_of(file)[-1]["items"] == 3
        file.close()
    assert step > 10


def test_a_kill_costs_at_most_the_line_in_flight(tmp_path: Path) -> None:
    for attempt in range(3):
        folder = tmp_path / str(attempt)
        command = [sys.executable, "-c", APPENDS_FOR_EVER, str(folder)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "0\n"
            time.sleep(0.05 * attempt)
            process.kill()
            told = len(process.stdout.readlines())
        file = ResultsFile(folder)
        file.resume()
        numbers = [line["number"] for line in lines_of(file)[1:]]
        assert numbers == list(range(len(numbers)))
        assert len(numbers) in (told + 1, told + 2)


def test_lines_of_another_writer_are_left_as_they_are(tmp_path: Path) -> None:
    file = ResultsFile(tmp_path)
    file.append({"nodeid": "first"})
    with file.path.open("a") as other:  # such as where the file system has no locks
        other.write('{"nodeid": "second"}\n')
    file.append({"nodeid": "third"})
    assert [line.get("nodeid") for line in lines_of(file)] == [None, "first", "second", "third"]


def test_a_line_that_the_disk_refuses_at_last_is_not_written_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = ResultsFile(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", refuse)
        file.append({"nodeid": "first"})
        assert "No space left on device" in file.error
    file.finish(0)
    assert [line.get("nodeid") for line in lines_of(file)] == [None, "first", None]


def refuse(descriptor: int) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_line_that_a_full_disk_refuses_is_written_once_there_is_room(small_disk: Path) -> None:
    file = ResultsFile(small_disk / "run")
    file.append({"nodeid": "first"})
    filler = fill(small_disk)
    file.append({"nodeid": "second", "text": "y" * 20_000})
    assert "No space left on device" in file.error
    assert len(file.unwritten) == 1
    filler.unlink()
    file.append({"nodeid": "third"})
    file.finish(0)
    assert not file.unwritten
    assert file.error == "", "a run that lost nothing has not failed"
    nodeids = [line.get("nodeid") for line in lines_of(file)]
    assert nodeids == [None, "first", "second", "third", None]


@pytest.mark.parametrize(("status", "written_status"), [(0, 1), (2, 2)])
def test_a_last_line_that_a_full_disk_refuses_says_that_the_run_failed(
    small_disk: Path, status: int, written_status: int
) -> None:
    file = ResultsFile(small_disk / "run")
    file.append({"nodeid": "first"})
    fill(small_disk)
    file.append({"nodeid": "second", "text": "y" * 20_000})
    file.finish(status)
    second, end = [json.loads(line) for line in file.unwritten]
    assert second["nodeid"] == "second"
    assert end["type"] == "end"
    assert end["exit_status"] == written_status


@pytest.mark.parametrize("has_other_files", [True, False])
def test_results_are_kept_out_of_git_in_a_folder_that_has_nothing_else(
    tmp_path: Path, has_other_files: bool
) -> None:
    if has_other_files:
        (tmp_path / "README.md").write_text("somebody has this in git")
    run = tmp_path / "20260102-030405-abcdef"
    (run / "items").mkdir(parents=True)  # artifacts come before the first line
    ResultsFile(run).append({"nodeid": "first"})
    assert (tmp_path / "latest").resolve() == run
    assert (tmp_path / ".gitignore").exists() is not has_other_files
