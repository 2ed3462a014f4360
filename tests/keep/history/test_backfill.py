"""Outcomes of releases that were measured, and the cases that a history has."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_mlms.keep.history import backfill
from pytest_mlms.keep.history.adding import add_run
from pytest_mlms.keep.history.backfill import Outcome, _outcome_of, measured_cases
from pytest_mlms.keep.history.store import open_history
from tests.support.histories import item_line, run_lines, write_run


def test_an_item_that_the_history_can_not_use_is_a_problem_and_not_measured() -> None:
    failed = {"type": "teardown", "nodeid": item_line(0, 2)["nodeid"], "message": "no room"}
    invalid = item_line(0, 1, verdict="INVALID", message="the clock jumped")
    lines = [*run_lines(0, items=0), item_line(0, 0), invalid, item_line(0, 2), failed]
    assert _outcome_of(iter(lines)) == Outcome(1, "the clock jumped")
    assert _outcome_of(iter([item_line(0, 2), failed])) == Outcome(0, "no room")


def test_a_series_that_is_added_meanwhile_is_left_out(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = open_history(address)
    add_run(history, write_run(tmp_path, 0))
    with history.connect() as connection:
        assert measured_cases(connection, "onnxruntime").keys() == {"1.32.0"}
        monkeypatch.setattr(backfill, "series_names", lambda connection: {})
        assert measured_cases(connection, "onnxruntime") == {}
