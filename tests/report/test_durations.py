"""Durations of items in earlier runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pytest_mlms.report.durations import earlier_durations


def write_run(results: Path, name: str, *lines: dict[str, Any], rest: str = "") -> None:
    folder = results / name
    folder.mkdir(parents=True)
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / "results.jsonl").write_text(text + rest)


def item(nodeid: str, setup: float, call: float, verdict: str = "PASSED") -> dict[str, Any]:
    seconds = {"setup": setup, "call": call}
    return {"type": "item", "nodeid": nodeid, "verdict": verdict, "seconds": seconds}


def test_the_phases_of_an_item_are_added(tmp_path: Path) -> None:
    lines = [{"type": "run"}, item("a", 1, 1), item("b", 5, 1)]
    write_run(tmp_path, "20260101-000000-aaaaaa", *lines, rest='{"type": "it')
    assert earlier_durations(tmp_path) == {"a": 2, "b": 6}


def test_the_latest_of_the_last_three_runs_counts(tmp_path: Path) -> None:
    for number in range(1, 5):
        write_run(tmp_path, f"2026010{number}", item("a", number, 0), item(f"only {number}", 1, 0))
    assert earlier_durations(tmp_path) == {"a": 4, "only 2": 1, "only 3": 1, "only 4": 1}


def test_skipped_items_and_items_without_durations_are_left_out(tmp_path: Path) -> None:
    without = {"type": "item", "nodeid": "b", "verdict": "ERROR", "seconds": None}
    write_run(tmp_path, "20260101", item("a", 0, 0, "SKIPPED"), without)
    assert earlier_durations(tmp_path) == {}


def test_there_may_be_no_earlier_run(tmp_path: Path) -> None:
    assert earlier_durations(tmp_path / "missing") == {}
