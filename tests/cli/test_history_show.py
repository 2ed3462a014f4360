"""The command ``mlms history show`` on six runs, with an upgrade before the fourth."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest

from pytest_mlms.cli.main import main
from tests.support.histories import add_upgraded_runs, run_name

SERIES = "model-0 onnxruntime-cpu-b64-offline: latency_p50, lower is better"


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("history")
    address = str(folder / "history.sqlite")
    add_upgraded_runs(address, folder)
    return address


@pytest.fixture
def shown(history: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that runs the command and returns the lines of its output."""
    monkeypatch.setenv("MLMS_HISTORY", history)

    def show(*arguments: str) -> list[str]:
        assert main(["history", "show", *arguments]) == 0
        return capsys.readouterr().out.splitlines()

    return show


def test_without_an_expression_each_item_has_a_line(shown: Any) -> None:
    lines = shown()
    assert [line.split()[:3] for line in lines[2:6:2]] == [
        [f"model-{item}", "onnxruntime-cpu-b64-offline", "latency_p50"] for item in range(2)
    ]
    points, value, unit, interval, percent, change, _, trend = lines[3].split()
    assert (points, value, unit) == ("6", "719", "µs")
    assert (interval[0], percent) == ("±", "%")
    assert (change, trend) == ("+10.0", "▁▁▁███")
    assert lines[6].startswith("also measured: first_inference, latency_mean,")


def test_one_series_has_its_points_and_what_changed_between_them(shown: Any) -> None:
    lines = shown("-k", "model-0", "--last", "4")
    assert lines[0] == SERIES
    assert lines[2].split() == ["run", "value", "interval", "verdict", "commit", "host"]
    runs = [line.split()[0] for line in lines if line.startswith("2026")]
    assert runs == [run_name(night) for night in range(2, 6)]
    changed = "onnxruntime 1.32.0 → 1.33.0, new: mpmath 1, numpy 2.4.6 → 2.5.0, gone: six 1"
    assert changed in " ".join(" ".join(lines[4:6]).split())
    assert "2 earlier points: --last N" in lines


def test_a_package_has_a_row_for_each_version(shown: Any) -> None:
    lines = shown("-k", "model-0", "--by", "onnxruntime")
    assert lines[0] == SERIES
    rows = [line.split() for line in lines[3:5]]
    assert [(row[0], row[1]) for row in rows] == [("1.32.0", "3"), ("1.33.0", "3")]
    assert "+10.0" in rows[1]


@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_no_line_is_wider_than_the_terminal(
    shown: Any, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(width))
    for arguments in ((), ("-k", "model-0"), ("--by", "onnxruntime"), ("--quantity", "all")):
        assert max(map(len, shown(*arguments))) <= width


def test_csv_and_json_have_all_points_of_all_quantities(shown: Any) -> None:
    table = list(csv.DictReader(shown("-k", "model-0", "--format", "csv")))
    rows = json.loads("".join(shown("-k", "model-0", "--format", "json")))
    assert len(table) == len(rows) == 6 * 9
    (point,) = [
        row for row in rows if row["quantity"] == "latency_p50" and row["run"] == run_name(3)
    ]
    assert point["changed"]["numpy"] == ["2.4.6", "2.5.0"]
    assert point["changed"]["six"] == ["1", None]
    assert {row["run"] for row in table} == {run_name(night) for night in range(6)}
    versions = json.loads("".join(shown("-k", "model-0", "--by", "numpy", "--format", "json")))
    assert {(row["version"], row["runs"]) for row in versions} == {("2.4.6", 3), ("2.5.0", 3)}


@pytest.mark.parametrize("in_job", ["true", ""])
def test_an_output_without_unicode_gets_ascii(
    history: str, monkeypatch: pytest.MonkeyPatch, in_job: str
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", in_job)
    content = io.BytesIO()
    output = io.TextIOWrapper(content, encoding="ascii")
    monkeypatch.setattr("sys.stdout", output)
    assert main(["history", "show", "--history", history, "-k", "model-0"]) == 0
    assert main(["history", "show", "--history", history]) == 0
    output.flush()
    assert output.errors == "replace"
    text = content.getvalue().decode("ascii")
    assert "onnxruntime 1.32.0 -> 1.33.0" in text
    assert "+-" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-k", "b7"], "selects no series; there are model-0, model-1: try -k model-0"),
        (["--by", "torch"], "no stack of the history has the package 'torch'"),
        (["--history", "missing.sqlite"], "there is no history; pytest --mlms-history makes one"),
    ],
)
def test_a_mistake_is_an_error_that_says_what_there_is(
    history: str, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert main(["history", "show", "--history", history, *arguments]) == 2
    assert message in capsys.readouterr().err
