"""``mlms report``."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from pytest_mlms.cli.main import main
from tests.support.histories import add_slower_runs, run_name
from tests.support.report_runs import every_verdict, write_lines


def test_runs_become_one_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [str(write_lines(tmp_path / name, every_verdict())) for name in ("a", "b")]
    out = tmp_path / "out.html"
    assert main(["report", *runs, "--against", runs[0], "--out", str(out)]) == 0
    assert capsys.readouterr().out == f"{out}\n"
    assert out.read_text().count("<dt>Command</dt>") == 2


def test_a_folder_without_a_run_and_a_wrong_file_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = str(write_lines(tmp_path / "a", every_verdict()))
    assert main(["report", str(tmp_path / "no"), "--out", str(tmp_path / "x.html")]) == 2
    assert "name the folder of a run" in capsys.readouterr().err
    assert main(["report", run, "--out", str(tmp_path)]) == 2
    assert "is a folder; name a file" in capsys.readouterr().err
    assert main(["report", run, "--out", str(tmp_path / "no" / "x.html")]) == 2
    assert "there is no folder" in capsys.readouterr().err


def test_upgrades_become_markdown_for_an_issue_tracker(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = str(write_lines(tmp_path / "runs" / "a", every_verdict()))
    assert main(["report", run, "--upgrade-report"]) == 0
    assert capsys.readouterr().out == "upgrade-report.md\n"
    text = Path("upgrade-report.md").read_text()
    assert text.count("## Verdict: REGRESSED") == 1
    assert "mlms repro 'runs/a::models/m.yaml" in text


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--upgrade-report", "--history=h"], "leave out --against and --history"),
        (["--bisection=b.json"], "--bisection is for --upgrade-report"),
        (["--upgrade-report", "--bisection=b.json"], "there is no b.json"),
        (["--upgrade-report", "--out=no/x.md"], "there is no folder no"),
    ],
)
def test_options_that_do_not_go_together_are_named(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    problem: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    run = str(write_lines(tmp_path / "a", every_verdict()))
    assert main(["report", run, *words]) == 2
    assert problem in capsys.readouterr().err


@pytest.mark.parametrize("setting", ["mlms_history = h.sqlite", "addopts = --mlms-history"])
def test_the_history_of_the_projects_settings_is_shown(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    setting: str,
) -> None:
    monkeypatch.delenv("MLMS_HISTORY", raising=False)
    monkeypatch.chdir(tmp_path)
    Path("pytest.ini").write_text(f"[pytest]\n{setting}\n")
    folder = Path("mlms-results")
    run = str(folder / run_name(5))
    add_slower_runs("h.sqlite", folder, 6)
    if "addopts" in setting:
        Path("h.sqlite").rename(folder / "history.sqlite")
    assert main(["report", run]) == 0
    assert "Over time" in Path("report.html").read_text()
    Path("pytest.ini").write_text("[pytest]\nmlms_history = none.sqlite\n")
    assert main(["report", run]) == 0
    assert "the report is without series: " in capsys.readouterr().err
    assert "Over time" not in Path("report.html").read_text()
    assert main(["report", run, "--history=none.sqlite"]) == 2
    assert main(["report", run, "--upgrade-report"]) == 0


def test_the_extra_is_named_where_jinja2_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec

    def find_without_jinja2(name: str, package: str | None = None) -> Any:
        return None if name == "jinja2" else find(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", find_without_jinja2)
    assert main(["report", str(tmp_path)]) == 2
    assert "pip install 'jinja2>=3.1.6'" in capsys.readouterr().err
