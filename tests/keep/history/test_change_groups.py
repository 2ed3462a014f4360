"""Groups of changes, and what else differs between the runs before and after."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from pytest_mlms.keep.history.adding import add_run
from pytest_mlms.keep.history.change_groups import ChangeGroup, Difference, came_near, group_changes
from pytest_mlms.keep.history.change_scan import scan
from pytest_mlms.keep.history.changes import read_changes
from pytest_mlms.keep.history.queries import points
from pytest_mlms.keep.history.store import open_history
from tests.support.histories import (
    ITEM,
    add_upgraded_runs,
    item_line,
    run_lines,
    run_name,
    write_lines,
    write_run,
)

RUNS = 40


@pytest.fixture
def history(address: str) -> Engine:
    return open_history(address)


def add(history: Engine, folder: Path, steps: dict[int, int], **after: Any) -> None:
    """Add runs of items that get slower: item -> the night. ``after`` are fields from then on."""
    for night in range(RUNS):
        run, _, end = run_lines(night)
        lines = []
        for item, step in steps.items():
            ratio = 1.2 if night >= step else 1 + 0.001 * (night % 3)
            line = item_line(night, item, ratio)
            line["estimates"] = {"latency_p50": line["estimates"]["latency_p50"]}
            if night >= step:
                line.update(after)
            lines.append(line)
        write_lines(folder / run_name(night), [run, *lines, end])
        add_run(history, folder / run_name(night))


def groups(history: Engine) -> list[ChangeGroup]:
    scan(history)
    return group_changes(history, read_changes(history))


def test_changes_of_one_night_are_one_group(history: Engine, tmp_path: Path) -> None:
    add(history, tmp_path, {0: 25, 1: 25, 2: 26})
    [group] = groups(history)
    assert len(group.changes) == 3
    assert group.first_run == run_name(25)
    assert group.last_run == run_name(24)


def test_changes_of_other_nights_are_groups_in_order(history: Engine, tmp_path: Path) -> None:
    add(history, tmp_path, {0: 30, 1: 20})
    assert [group.first_run for group in groups(history)] == [run_name(20), run_name(30)]


def test_differences_between_the_runs_before_and_after_are_listed(
    history: Engine, tmp_path: Path
) -> None:
    launch = {**ITEM["launch"], "lock": ["onnxruntime==9.9.9"]}
    add(history, tmp_path, {0: 25}, launch=launch, python="3.14.0")
    [group] = groups(history)
    differences = {side.name: side for side in group.differences}
    assert differences["onnxruntime"].after == "9.9.9"
    assert differences["python"] == Difference("python", ITEM["python"], "3.14.0")
    assert "host" not in differences


def test_a_package_from_another_address_is_told_where_no_version_differs(
    history: Engine, tmp_path: Path
) -> None:
    """The line of a night with other software named none: "version changed …: "."""
    lock = ITEM["launch"]["lock"]
    launch = {**ITEM["launch"], "lock": [f"{lock[0]} # https://mirror/a.whl", *lock[1:]]}
    add(history, tmp_path, {0: 25}, launch=launch)
    [group] = groups(history)
    assert group.differences == [Difference("a package's address", "one", "another")]


def test_no_change_is_no_group(history: Engine) -> None:
    assert group_changes(history, []) == []


def test_software_near_a_change_may_have_come_with_it(
    history: Engine, address: str, tmp_path: Path
) -> None:
    add_upgraded_runs(address, tmp_path, 12)  # an upgrade before the fourth
    nights = []
    with history.connect() as connection:
        rows = points(connection, 1)
        for night, row in enumerate(rows):
            came = came_near(connection, 1, row.started)
            if came and ("onnxruntime", "1.33.0") in came:
                nights.append(night)
        assert came == set()
        assert came_near(connection, 1, rows[0].started) is not None
        assert came_near(connection, 99, rows[3].started) is None
    assert nights == [1, 2, 3, 4, 5]


def test_a_side_without_a_record_of_its_software_is_not_known(
    history: Engine, tmp_path: Path
) -> None:
    for night in range(4):
        add_run(history, write_run(tmp_path, night, versions={}, launch={"command": ["python"]}))
    with history.connect() as connection:
        assert came_near(connection, 1, points(connection, 1)[2].started) is None
