"""The commands ``mlms history export`` and ``mlms history rebuild``."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_mlms.cli.main import main
from tests.support.histories import write_run


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
