"""The file with the reports of regressed upgrades."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_mlms.show.report.upgrade_report import write_run_upgrades
from tests.support.histories import run_lines, write_lines
from tests.support.result_lines import upgrade


@pytest.mark.parametrize(
    ("kinds", "told"),
    [
        (["upgrade", "soak"], "report of 1 upgrade and 1 soak that regressed in "),
        (["soak"], "report of 1 soak that regressed in "),
        (["upgrade", "upgrade"], "report of 2 upgrades that regressed in "),
        ([], "no upgrade regressed, and "),
    ],
)
def test_what_regressed_is_told_by_its_kind(kinds: list[str], told: str, tmp_path: Path) -> None:
    head, *_ = run_lines(1, items=0)
    items = [
        {**head, **upgrade(), "type": "item", "kind": kind, "nodeid": str(n)}
        for n, kind in enumerate(kinds)
    ]
    write_lines(tmp_path / "run", [head, *items])
    (line,), notes = write_run_upgrades(tmp_path / "u.md", tmp_path / "run")
    assert line.startswith(told)
    assert not notes
