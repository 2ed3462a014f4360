"""Tests of reading results files."""

from __future__ import annotations

from pathlib import Path

from pytest_mlms.keep.results.results_reader import read_results


def test_every_line_is_read_but_one_that_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    path.write_text('{"nodeid": "first"}\n{"nodeid": "second"}\n{"nodeid": "thi')
    assert [line["nodeid"] for line in read_results(path)] == ["first", "second"]


def test_lines_that_are_no_objects_are_skipped(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    path.write_bytes(b'[1]\n\n\xff\n{"nodeid": "first"}\n')
    assert list(read_results(path)) == [{"nodeid": "first"}]


def test_a_file_that_is_not_there_has_no_lines(tmp_path: Path) -> None:
    assert list(read_results(tmp_path / "results.jsonl")) == []
