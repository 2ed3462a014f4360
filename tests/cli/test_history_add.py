"""The command ``mlms history add``."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_mlms.cli.main import main


def test_a_folder_without_a_run_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    history = tmp_path / "history.sqlite"
    assert main(["history", "add", "--history", str(history), str(tmp_path)]) == 1
    assert "name a run" in capsys.readouterr().err
