"""Series whose newest runs have another version: what is named, and what the gate makes of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import Engine

from pytest_mlms.keep.history.adding import add_run
from pytest_mlms.keep.history.change_scan import scan
from pytest_mlms.keep.history.changes import add_decided, read_changes
from pytest_mlms.keep.history.store import open_history
from pytest_mlms.keep.history.version_steps import VersionChange, version_changes
from tests.support.histories import (
    NEW_LOCK,
    OLD_LOCK,
    item_line,
    run_lines,
    run_name,
    write_lines,
)

SPREAD = (0.98, 1.02, 0.985, 1.015, 0.99, 1.01, 0.98, 1.02, 1.0, 1.0)
"""Ten nights with a deviation of 1.6 %."""


@pytest.fixture
def history(address: str) -> Engine:
    return open_history(address)


def add(
    history: Engine,
    folder: Path,
    nights: Sequence[Sequence[float]],
    first: int = 0,
    lock: Sequence[str] = OLD_LOCK,
    own_stacks: bool = False,
) -> None:
    """Add a run for each night, with the median latency of an item for each of its ratios.

    With ``own_stacks`` each item has a package that the others have not.
    """
    for night, ratios in enumerate(nights, first):
        run, *_, end = run_lines(night)
        lines = [run]
        for item, ratio in enumerate(ratios):
            own = [f"of-item=={item}"] if own_stacks else []
            launch = {"command": ["python"], "lock": [*lock, *own]}
            line = item_line(night, item, ratio, launch=launch, versions={})
            line["estimates"] = {"latency_p50": line["estimates"]["latency_p50"]}
            lines.append(line)
        write_lines(folder / run_name(night), [*lines, end])
        add_run(history, folder / run_name(night))


def told(history: Engine) -> list[VersionChange]:
    scan(history)
    return version_changes(history, range(1, 100))


def test_a_step_that_ten_nights_can_not_show_is_named_with_the_versions(
    history: Engine, tmp_path: Path
) -> None:
    add(history, tmp_path, [[ratio] for ratio in SPREAD])
    assert told(history) == []
    add(history, tmp_path, [[1.07]], first=10, lock=NEW_LOCK)
    [version] = told(history)
    assert read_changes(history) == []
    [change] = version.suspected
    assert (change.first_run, change.kind, change.is_worse) == (run_name(10), "named", True)
    assert change.ratio == pytest.approx(1.07, rel=0.002)
    assert change.low is not None
    assert change.high is not None
    assert 1 < change.low < 1.07 < change.high
    first = version.differences[0]
    assert (first.name, first.before, first.after) == ("onnxruntime", "1.32.0", "1.33.0")
    assert version.least is not None
    assert 0.04 < version.least[0] < 0.07
    assert (version.runs, version.series, version.too_few, version.found) == (1, 1, 0, 0)


@pytest.mark.parametrize("ratio", [0.99, 1.0, 1.02])
def test_a_version_without_a_step_names_no_series_but_what_could_be_seen(
    history: Engine, tmp_path: Path, ratio: float
) -> None:
    add(history, tmp_path, [[ratio] for ratio in SPREAD])
    add(history, tmp_path, [[ratio]], first=10, lock=NEW_LOCK)
    [version] = told(history)
    assert version.suspected == []
    assert version.least is not None


def test_a_step_that_is_found_is_not_named_again(history: Engine, tmp_path: Path) -> None:
    add(history, tmp_path, [[ratio] for ratio in SPREAD])
    add(history, tmp_path, [[1.2]], first=10, lock=NEW_LOCK)
    [version] = told(history)
    assert len(read_changes(history)) == 1
    assert (version.found, version.series, version.suspected) == (1, 1, [])


def test_fewer_than_three_nights_before_tell_nothing_and_are_counted(
    history: Engine, tmp_path: Path
) -> None:
    add(history, tmp_path, [[1.0], [1.0]])
    add(history, tmp_path, [[2.0]], first=2, lock=NEW_LOCK)
    [version] = told(history)
    assert (version.too_few, version.suspected, version.least) == (1, [], None)


def test_a_version_is_told_of_until_the_search_for_any_step_may_find_it(
    history: Engine, tmp_path: Path
) -> None:
    add(history, tmp_path, [[ratio] for ratio in SPREAD])
    for night in range(10, 18):
        add(history, tmp_path, [[1.0]], first=night, lock=NEW_LOCK)
        assert [version.runs for version in told(history)] == [night - 9]
    add(history, tmp_path, [[1.0]], first=18, lock=NEW_LOCK)
    assert told(history) == []


def test_a_suspicion_outlives_another_version_of_the_next_night(
    history: Engine, tmp_path: Path
) -> None:
    add(history, tmp_path, [[ratio] for ratio in SPREAD])
    add(history, tmp_path, [[1.065]], first=10, lock=NEW_LOCK)
    add(history, tmp_path, [[1.065]], first=11, lock=[*NEW_LOCK, "six==2"])
    [version] = told(history)
    changes = [*read_changes(history), *version.suspected]
    assert [change.first_run for change in changes] == [run_name(10)]


def test_one_series_of_many_needs_more_than_all_of_them(history: Engine, tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    nights = np.exp(rng.normal(0, 0.016, (10, 20)))
    last = np.ones(20)
    last[0] = 1.055
    add(history, tmp_path, nights.tolist())
    add(history, tmp_path, [last.tolist()], first=10, lock=NEW_LOCK)
    [version] = told(history)
    assert version.suspected == []
    assert version.least is not None
    assert version.least[1] > 0.055


@pytest.mark.parametrize(("stacks", "is_named"), [(1, True), (5, False)])
def test_all_stacks_whose_versions_changed_share_the_risk_of_a_night(
    history: Engine, tmp_path: Path, stacks: int, is_named: bool
) -> None:
    """Each had the whole: five without a change had one named in 23 % of nights."""
    add(history, tmp_path, [[ratio] * stacks for ratio in SPREAD], own_stacks=True)
    last = [1.045, *[1.0] * (stacks - 1)]  # a risk of 0.03
    add(history, tmp_path, [last], first=10, lock=NEW_LOCK, own_stacks=True)
    found = told(history)
    assert sum(version.series for version in found) == len(found) == stacks
    assert any(version.suspected for version in found) == is_named
    least = [version.least[0] for version in found if version.least]
    assert all(share < 0.065 for share in least) == is_named, "what can be seen is larger, too"


def test_all_series_of_a_night_are_evidence_for_each_other(history: Engine, tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    nights = np.exp(rng.normal(0, 0.016, (10, 20)))
    add(history, tmp_path, nights.tolist())
    add(history, tmp_path, [[1.055] * 20], first=10, lock=NEW_LOCK)
    [version] = told(history)
    assert version.found + len(version.suspected) >= 15


def test_a_dismissed_suspicion_is_not_named_again_and_moves_no_level(
    history: Engine, tmp_path: Path
) -> None:
    add(history, tmp_path, [[ratio] for ratio in SPREAD])
    add(history, tmp_path, [[1.06]], first=10, lock=NEW_LOCK)
    [version] = told(history)
    add_decided(history, version.suspected[0], "noise", "gate", "PASSED")
    [version] = told(history)
    assert version.suspected == []
    [row] = read_changes(history)
    assert (row.kind, row.status, row.cause, row.reason) == (
        "named",
        "dismissed",
        "noise",
        "PASSED",
    )
    add(history, tmp_path, [[ratio] for ratio in SPREAD], first=11, lock=NEW_LOCK)
    add(history, tmp_path, [[1.2]], first=21)
    scan(history)
    named, found = read_changes(history)
    assert named.status == "dismissed"
    assert found.first_run == run_name(21)
    assert found.ratio == pytest.approx(1.2, rel=0.01)


def test_a_dismissed_suspicion_that_lasts_is_the_same_change_and_stays_dismissed(
    history: Engine, tmp_path: Path
) -> None:
    add(history, tmp_path, [[ratio] for ratio in SPREAD])
    add(history, tmp_path, [[1.06]], first=10, lock=NEW_LOCK)
    [version] = told(history)
    add_decided(history, version.suspected[0], "machine", "gate", "PASSED")
    add(history, tmp_path, [[1.06 * ratio] for ratio in SPREAD], first=11, lock=NEW_LOCK)
    for _ in range(2):
        assert scan(history).found == 0
        [row] = read_changes(history)
        assert row.status == "dismissed"


def test_a_confirmed_suspicion_is_a_step_from_then_on(history: Engine, tmp_path: Path) -> None:
    add(history, tmp_path, [[ratio] for ratio in SPREAD])
    add(history, tmp_path, [[1.07]], first=10, lock=NEW_LOCK)
    [version] = told(history)
    add_decided(history, version.suspected[0], "software", "gate", "REGRESSED")
    add(history, tmp_path, [[1.07 * ratio] for ratio in SPREAD], first=11, lock=NEW_LOCK)
    scan(history)
    [change] = read_changes(history)
    assert (change.kind, change.status, change.cause) == ("step", "confirmed", "software")
    add(history, tmp_path, [[ratio] for ratio in SPREAD], first=21)
    scan(history)
    assert [change.status for change in read_changes(history)] == ["undone"]


def test_a_series_alone_in_its_night_is_no_alarm_however_often_it_is_searched(
    history: Engine, tmp_path: Path
) -> None:
    rng = np.random.default_rng(3)
    nights = np.exp(rng.normal(0, 0.01, (10, 30)))
    nights[:, 0] = SPREAD
    last = np.ones(30)
    last[0] = 1.09  # a risk of 4e-4: enough for one series, and not for one of thirty
    add(history, tmp_path / "one", nights[:, :1].tolist())
    add(history, tmp_path / "one", [[1.09]], first=10, lock=NEW_LOCK)
    assert scan(history).found == 1
    other = open_history(tmp_path / "other.sqlite")
    add(other, tmp_path / "many", nights.tolist())
    add(other, tmp_path / "many", [last.tolist()], first=10, lock=NEW_LOCK)
    assert scan(other).found == 0
    add(other, tmp_path / "many", [[1.0]], first=11, lock=NEW_LOCK)  # of the first series alone
    assert scan(other).found == 0
    assert read_changes(other) == []


@pytest.mark.parametrize("sign", [1, -1])
def test_a_negative_quantity_of_ones_own_is_searched_as_a_positive_one(
    history: Engine, tmp_path: Path, sign: int
) -> None:
    for night, ratio in enumerate([*SPREAD, 1.2]):
        run, *_, end = run_lines(night)
        launch = {"command": ["python"], "lock": list(OLD_LOCK if night < 10 else NEW_LOCK)}
        line = item_line(night, 0, launch=launch, versions={}, estimates={})
        line["quantities"] = {
            "score": {"value": sign * 100 * ratio, "unit": "", "better": "higher"}
        }
        write_lines(tmp_path / run_name(night), [run, line, end])
        add_run(history, tmp_path / run_name(night))
    assert scan(history).found == 1
    [change] = read_changes(history)
    assert change.before == pytest.approx(sign * 100, rel=0.01)
    assert change.after == pytest.approx(sign * 120, rel=0.01)
    assert change.is_worse == (sign < 0)
    assert change.ratio == pytest.approx(1.2, rel=0.01)
    assert change.low is not None
    assert change.high is not None
    assert change.low < 1.2 < change.high
