"""Values that only a damaged or hostile history has end in an error that says what to do."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from pytest_mlms.cli.main import main
from tests.support.histories import add_upgraded_runs

SHOW = ("show", "-kp50")
DAMAGES = [
    ("UPDATE point SET value = 'fast'", SHOW),
    ("UPDATE point SET value = 9e999", SHOW),
    ("UPDATE point SET low = 'x'", SHOW),
    ("UPDATE point SET value = 'fast'", ("changes",)),
    ("UPDATE point SET value = 9e999", ("changes",)),
    ("UPDATE series SET parts = '{'", SHOW),
    ("UPDATE series SET parts = '[1]'", SHOW),
    ("UPDATE series SET parts = '{}'", SHOW),
    ("UPDATE series SET parts = replace(hex(zeroblob(50000)), '00', '[')", SHOW),
]


@pytest.mark.parametrize(("damage", "command"), DAMAGES)
def test_a_damaged_value_is_told(
    damage: str, command: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    address = tmp_path / "history.sqlite"
    add_upgraded_runs(str(address), tmp_path, nights=16)
    database = sqlite3.connect(address)
    database.execute(damage)
    database.commit()
    database.close()
    status = main(["history", command[0], f"--history={address}", *command[1:]])
    errors = capsys.readouterr().err
    assert status == 2, errors
    assert "the history is damaged (" in errors
    assert "run 'mlms history rebuild'" in errors
