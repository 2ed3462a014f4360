"""Durations of items in earlier runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_mlms.keep.history.adding import add_run
from pytest_mlms.keep.history.machine_class import machine_class
from pytest_mlms.keep.history.store import open_history
from pytest_mlms.provide.host.machine import machine_state
from pytest_mlms.show.report.durations import earlier_durations, known_durations
from tests.support.histories import ITEM
from tests.support.histories import write_run as write_full_run


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


def test_links_to_runs_are_no_runs(tmp_path: Path) -> None:
    for number in range(1, 4):
        write_run(tmp_path, f"2026010{number}", item(f"only {number}", 1, 0))
        (tmp_path / f"bisect-{number}").symlink_to(f"2026010{number}")
    (tmp_path / "latest").symlink_to("20260103")
    assert set(earlier_durations(tmp_path)) == {"only 1", "only 2", "only 3"}


def test_skipped_items_and_items_without_durations_are_left_out(tmp_path: Path) -> None:
    without = {"type": "item", "nodeid": "b", "verdict": "ERROR", "seconds": None}
    write_run(tmp_path, "20260101", item("a", 0, 0, "SKIPPED"), without)
    assert earlier_durations(tmp_path) == {}


def test_there_may_be_no_earlier_run(tmp_path: Path) -> None:
    assert earlier_durations(tmp_path / "missing") == {}


def nodeid_of(model: int) -> str:
    return f"model-{model}.yaml::test_performance[{ITEM['case']}]"


def test_a_history_knows_durations_of_other_hosts_of_this_class(tmp_path: Path) -> None:
    here = {**machine_state(), "host": "another"}
    elsewhere = {**ITEM["machine"], "memory": 2**45}
    assert machine_class(here) != machine_class(elsewhere)
    history = open_history(tmp_path / "h.sqlite")
    seconds = [{"setup": 1, "call": call} for call in (1, 2, 3)]
    runs = [(elsewhere, seconds[0], 2), (here, seconds[1], 1), (elsewhere, seconds[2], 1)]
    for night, (machine, phases, items) in enumerate(runs):
        fields: dict[str, Any] = {"machine": machine, "seconds": phases}
        add_run(history, write_full_run(tmp_path / "far", night, items=items, **fields))
    write_run(tmp_path, "20260101", item(nodeid_of(0), 50, 50), item("only here", 1, 0))
    found = known_durations(tmp_path, str(tmp_path / "h.sqlite"))
    assert found == {nodeid_of(0): 3, nodeid_of(1): 2, "only here": 1}


def test_a_history_that_is_not_there_leaves_the_results(tmp_path: Path) -> None:
    write_run(tmp_path, "20260101", item("a", 1, 1))
    assert known_durations(tmp_path, str(tmp_path / "missing.sqlite")) == {"a": 2}
    (tmp_path / "broken.sqlite").write_text("no database")
    assert known_durations(tmp_path, str(tmp_path / "broken.sqlite")) == {"a": 2}
    away = "postgresql+psycopg://localhost:1/mlms"
    assert known_durations(tmp_path, away) == {"a": 2}
    assert known_durations(tmp_path) == {"a": 2}


@pytest.mark.parametrize(
    "damage",
    [
        {"verdict": None},
        {"nodeid": ["b"]},
        {"nodeid": None},
        {"seconds": {"call": "long"}},
        {"seconds": {"call": None}},
        {"seconds": {"setup": 1e308, "call": 1e308}},
        {"seconds": {"setup": 17 * 10**307, "call": 17 * 10**307}},
    ],
)
def test_a_line_that_somebody_damaged_costs_no_other_items_duration(
    damage: dict[str, Any], tmp_path: Path
) -> None:
    write_run(tmp_path, "20260101-000000-aaaaaa", {**item("b", 1, 1), **damage}, item("a", 1, 1))
    durations = earlier_durations(tmp_path)
    assert durations.pop("b", 2) == 2
    assert durations == {"a": 2}
