"""``mlms history add``, ``show``, ``backfill``, ``export`` and ``rebuild``."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from pytest_mlms.cli.main import main
from tests.support.confirmations import Nights
from tests.support.histories import add_upgraded_runs, run_name, write_run
from tests.support.project import PREDICTORS, Project
from tests.support.wheels import offline, write_wheel  # noqa: F401


def test_a_folder_without_a_run_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    history = tmp_path / "history.sqlite"
    assert main(["history", "add", "--history", str(history), str(tmp_path)]) == 1
    assert "name a run" in capsys.readouterr().err


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


pytestmark = [pytest.mark.usefixtures("offline"), pytest.mark.slow]

OPTIONS = (
    "-p no:hypothesispytest --mlms-processes=1 --mlms-duration=0.01 "
    f"-Wignore:no_limit_judges --mlms-predictors={PREDICTORS}"
)


@pytest.fixture
def nights(
    project: Project, tmp_path: Path, seeds: Path, monkeypatch: pytest.MonkeyPatch
) -> Nights:
    monkeypatch.chdir(project.path)
    monkeypatch.setenv("PYTEST_ADDOPTS", OPTIONS)
    made = Nights(project, tmp_path / "wheels", seeds)
    project.edit("seed: 7", "seed: 7\n  threads: 1")
    write_wheel(tmp_path / "wheels", "pacekit", "0.9", needs="nowhere")
    write_wheel(tmp_path / "wheels", "pacekit", "4rc1")
    return made


def backfill(nights: Nights, *arguments: str) -> int:
    folders = [f"--mlms-cache={nights.cache}", f"--mlms-predictors={nights.predictors}"]
    history = f"--history={nights.address}"
    words = ["pacekit>=0.9", "manifests", "-ktest_performance", history, *folders, *arguments]
    return main(["history", "backfill", *words])


def test_releases_that_were_never_measured_are_measured_the_newest_first(
    nights: Nights, capfd: pytest.CaptureFixture[str]
) -> None:
    nights.repeat(nights.measure("2"), 1)
    capfd.readouterr()
    assert backfill(nights, "--dry-run", "--last=3") == 0
    plan = capfd.readouterr().out.splitlines()
    assert plan[0].startswith("pacekit 3: 1 item to measure, wheel")
    assert plan[1] == "pacekit 2: in the history"
    assert plan[2].startswith("pacekit 1: 1 item to measure")
    assert backfill(nights) == 1
    output = capfd.readouterr().out
    assert output.index("pacekit 3: 1 item measured") < output.index("pacekit 1: 1 item measured")
    assert "pacekit 0.9: 0 items measured\n  stack pacekit-0.9 can't be made with" in output
    assert "No matching distribution found for nowhere" in output
    capfd.readouterr()
    assert backfill(nights, "--last=3") == 0
    assert "to measure" not in capfd.readouterr().out
    show = ["history", "show", "--by=pacekit", "--quantity=latency_p50"]
    assert main([*show, f"--history={nights.address}"]) == 0
    rows = capfd.readouterr().out.splitlines()
    levels = {row[0]: float(row.split()[2]) for row in rows if row[:2] in ("1 ", "2 ", "3 ")}
    assert levels == pytest.approx({"1": 10.0, "2": 13.0, "3": 10.0}, rel=0.03)


def test_an_export_to_a_file_is_what_is_printed_and_makes_the_same_history(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    history = str(tmp_path / "history.sqlite")
    results = tmp_path / "results"
    write_run(results, 0)
    write_run(results, 1)
    assert main(["history", "rebuild", "--history", history, str(results)]) == 0
    assert capsys.readouterr().out == "2 runs, 18 points\n"
    file = tmp_path / "export.jsonl"
    assert main(["history", "export", "--history", history, str(file)]) == 0
    assert main(["history", "export", "--history", history]) == 0
    assert capsys.readouterr().out == file.read_text()
    other = str(tmp_path / "other.sqlite")
    assert main(["history", "rebuild", "--history", other, str(file)]) == 0
    assert capsys.readouterr().out == "2 runs, 18 points\n"


def test_an_export_of_no_history_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["history", "export", "--history", str(tmp_path / "none.sqlite")]) == 2
    assert "there is no history" in capsys.readouterr().err
    assert main(["history", "export", "--history", str(tmp_path / "h.sqlite"), "no/e.jsonl"]) == 2
    assert "FILE: there is no folder no; make it" in capsys.readouterr().err
