"""Damaged lines of results end in an error that has the file and the line, in each reader."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_mlms.cli.main import main
from pytest_mlms.keep.results.checked_lines import LineError, read_lines
from tests.support.histories import item_line
from tests.support.project import Project
from tests.support.result_lines import line_of

DAMAGED: list[tuple[str, Any]] = [
    ("stack", 1),
    ("stack", {"name": "s", "declared": {"env": ["x"]}}),
    ("machine", {"memory": "much"}),
    ("machine", {"cores": 2}),
    ("estimates", {"latency_p50": {"value": "fast"}}),
    ("launch", {"lock": [1]}),
    ("verdict", "SPLENDID"),
    ("model", {"sha256": {"graph": 1}}),
    ("nodeid", None),
    ("artifacts", {"a": []}),
    ("variant", 1.5),
    ("shape", ["s"]),
    ("load", ["rate"]),
    ("scenario", {}),
    ("repetition", "2"),
]


def write(folder: Path, *lines: object) -> Path:
    path = folder / "results.jsonl"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return path


@pytest.mark.parametrize(("name", "value"), DAMAGED)
def test_a_field_of_another_type_is_told_with_its_line(
    name: str, value: Any, tmp_path: Path
) -> None:
    path = write(tmp_path, item_line(1), item_line(1, **{name: value}))
    with pytest.raises(LineError, match=rf"results.jsonl:2: {name}.*; this is no line of a run"):
        list(read_lines(path))


def test_a_line_of_a_later_format_is_refused_as_its_fields_mean_something_else(
    tmp_path: Path,
) -> None:
    path = write(tmp_path, item_line(1), item_line(1, format=2))
    with pytest.raises(LineError, match=r"results.jsonl:2: it has format 2, this version reads 1"):
        list(read_lines(path))


def test_texts_that_no_history_could_index_are_read(tmp_path: Path) -> None:
    declared = {"env": {"LD_LIBRARY_PATH": "/opt/lib:" * 1000}}
    stack = {**item_line(1)["stack"], "declared": declared}
    (line,) = read_lines(write(tmp_path, item_line(1, stack=stack)))
    assert line["stack"]["declared"]["env"] == declared["env"]


def test_what_a_user_noted_under_the_name_of_a_field_of_ours_is_left_out(tmp_path: Path) -> None:
    path = write(tmp_path, {"type": "item", **line_of(), "rounds": 7, "worse_inputs": ["a"]})
    (line,) = read_lines(path)
    assert "rounds" not in line
    assert line["worse_inputs"] == ["a"]


COMPARISON = {"quantity": "latency", "verdict": "REGRESSED", "of": "rounds", "unit": "s"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("comparisons", [{**COMPARISON, "least_change": "much"}]),
        ("comparisons", [{**COMPARISON, "asked": []}]),
        ("outputs", 5),
        ("outputs", {"repeated": {"b": [50]}}),
        ("outputs", {"elsewhere": 7}),
    ],
)
def test_what_an_upgrade_notes_of_another_type_is_left_out(
    name: str, value: Any, tmp_path: Path
) -> None:
    path = write(tmp_path, {"type": "item", **line_of(kind="upgrade"), name: value})
    (line,) = read_lines(path)
    assert name not in line


def test_a_line_that_is_cut_off_is_left_out_only_at_the_end(tmp_path: Path) -> None:
    path = write(tmp_path, item_line(1))
    whole = path.read_text()
    path.write_text(whole + whole[:50])
    assert len(list(read_lines(path))) == 1
    path.write_text(whole[:50] + "\n" + whole)
    with pytest.raises(LineError, match="results.jsonl:1: it is no line of results"):
        list(read_lines(path))


@pytest.mark.parametrize("command", [["lock", "write"], ["lock", "check"], ["repro"]])
def test_commands_tell_a_damaged_line(
    command: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "run"
    run.mkdir()
    write(run, item_line(1, machine={"cores": {"logical": "many"}}))
    (tmp_path / "mlms.lock").write_text("version = 1\n")
    argument = "run::model" if command == ["repro"] else "run"
    assert main([*command, argument]) == 2
    assert "results.jsonl:1: machine.cores.logical: " in capsys.readouterr().err


def test_a_run_with_a_damaged_line_is_not_resumed(project: Project) -> None:
    run = project.path / "mlms-results" / "20260101-000000-000001"
    run.mkdir(parents=True)
    write(run, item_line(1, verdict=["PASSED"]))
    done = project.run(f"--mlms-resume={run.name}")
    assert done.ret == 4
    assert "--mlms-resume: " in done.stderr.str()
    assert "results.jsonl:1: verdict: " in done.stderr.str()
