"""Tests of the results file, also on a disk that is full."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_mlms.report.results import ResultsFile
from tests.support.small_disk import fill


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
    assert file.unwritten == []
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
