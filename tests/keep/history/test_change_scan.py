"""The search of a history for changes, on each kind of database."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, Engine

from pytest_mlms.keep.history import change_scan
from pytest_mlms.keep.history.adding import add_run
from pytest_mlms.keep.history.change_scan import scan, sights
from pytest_mlms.keep.history.changes import (
    Change,
    accept_changes,
    read_changes,
    set_cause,
    suspicions,
)
from pytest_mlms.keep.history.store import open_history, transact
from tests.support.histories import item_line, run_lines, run_name, write_lines

Ratios = Sequence[float | None]
OLD = [1 + 0.001 * (night % 3) for night in range(20)]


@pytest.fixture
def history(address: str) -> Engine:
    return open_history(address)


def add(history: Engine, folder: Path, ratios: Ratios, first: int = 0, **fields: Any) -> None:
    """Add a run of one item for each ratio; None is a night without a run."""
    for night, ratio in enumerate(ratios, first):
        if ratio is None:
            continue
        run, _, end = run_lines(night)
        line = item_line(night, ratio=ratio, **fields)
        line["estimates"] = {"latency_p50": line["estimates"]["latency_p50"]}
        write_lines(folder / run_name(night), [run, line, end])
        add_run(history, folder / run_name(night))


def only_change(history: Engine) -> Change:
    scan(history)
    [change] = read_changes(history)
    return change


def test_one_shift_is_one_change_however_long_it_lasts(history: Engine, tmp_path: Path) -> None:
    add(history, tmp_path, OLD)
    assert scan(history).found == 0
    reported = []
    for night in range(20, 50):
        add(history, tmp_path, [1.1 + 0.001 * (night % 3)], first=night)
        reported.append(scan(history).found)
    assert sum(reported) == 1
    [change] = suspicions(history)
    assert change.first_run == run_name(20)
    assert change.ratio == pytest.approx(1.1, rel=0.003)
    assert change.low is not None
    assert change.high is not None
    assert change.low < 1.1 < change.high
    assert change.is_worse


def test_only_series_with_new_points_are_searched(history: Engine, tmp_path: Path) -> None:
    add(history, tmp_path, OLD)
    assert scan(history).searched == 1
    assert scan(history).searched == 0
    add(history, tmp_path, [1.0], first=20)
    assert scan(history).searched == 1


@pytest.mark.parametrize("verdict", ["INVALID", "ERROR"])
def test_values_that_say_nothing_are_left_out(
    history: Engine, tmp_path: Path, verdict: str
) -> None:
    add(history, tmp_path, OLD)
    add(history, tmp_path, [2.0] * 15, first=20, verdict=verdict)
    scan(history)
    assert read_changes(history) == []


def test_nights_without_a_run_do_not_matter(history: Engine, tmp_path: Path) -> None:
    add(history, tmp_path, [*OLD, None, None, None, *[1.2] * 10])
    assert only_change(history).first_run == run_name(23)


def test_runs_that_are_added_late_count_where_they_belong(history: Engine, tmp_path: Path) -> None:
    add(history, tmp_path, [*OLD[:15], *[None] * 5, *[1.2] * 4])
    scan(history)
    add(history, tmp_path, [1.2] * 5, first=15)
    assert only_change(history).first_run in (run_name(15), run_name(20))
    scan(history)
    assert len(read_changes(history)) == 1


def test_a_change_that_goes_back_closes_itself(history: Engine, tmp_path: Path) -> None:
    add(history, tmp_path, [*OLD, *[1.2] * 10])
    assert only_change(history).status == "open"
    add(history, tmp_path, OLD, first=30)
    change = only_change(history)
    assert change.status == "undone"
    assert change.undone_run == run_name(30)


@pytest.mark.parametrize(("third", "ratio"), [(1.21, 1.1), (1.05, 1.05 / 1.1)])
def test_the_ratio_of_a_change_is_that_to_the_level_after_the_change_before_it(
    history: Engine, tmp_path: Path, third: float, ratio: float
) -> None:
    levels = [1.0] * 20 + [1.1] * 12 + [third] * 8
    noise = [1 + 0.001 * (night % 3) for night in range(40)]
    add(history, tmp_path, [level * each for level, each in zip(levels, noise, strict=True)])
    scan(history)
    _, second = read_changes(history)
    assert second.first_run == run_name(32)
    assert second.ratio == pytest.approx(ratio, rel=0.003)
    assert second.is_worse is (third > 1.1)
    assert second.after == pytest.approx(second.before * ratio, rel=0.003)


def test_a_suspicion_keeps_its_direction_where_most_later_points_are_at_the_old_level(
    history: Engine, tmp_path: Path
) -> None:
    add(history, tmp_path, [*OLD, *[1.1] * 5])
    assert only_change(history).is_worse
    add(history, tmp_path, [*[0.999] * 4, 1.1, *[0.999] * 4], first=25)
    change = only_change(history)
    assert change.status == "open"
    assert change.ratio < 1
    assert change.is_worse


def test_a_confirmed_change_that_is_mended_is_undone_and_keeps_its_cause(
    history: Engine, tmp_path: Path
) -> None:
    add(history, tmp_path, [*OLD, *[1.2] * 10])
    set_cause(history, only_change(history).id, "software", confirmed_by="run", reason="REGRESSED")
    add(history, tmp_path, OLD, first=30)
    change = only_change(history)
    assert (change.status, change.cause) == ("undone", "software")


def test_an_accepted_level_is_the_one_to_compare_with(history: Engine, tmp_path: Path) -> None:
    add(history, tmp_path, [*OLD, *[1.2 * ratio for ratio in OLD]])
    assert accept_changes(history, [only_change(history).id], "known", "ann") == [1]
    add(history, tmp_path, OLD, first=40)
    scan(history)
    accepted, gain = read_changes(history)
    assert (accepted.status, accepted.decided_by) == ("accepted", "ann")
    assert gain.status == "open"
    assert gain.first_run == run_name(40)
    assert not gain.is_worse


def test_a_dismissed_change_stays_dismissed(history: Engine, tmp_path: Path) -> None:
    add(history, tmp_path, [*OLD, *[1.2] * 10])
    set_cause(history, only_change(history).id, "machine", reason="the control item stepped too")
    add(history, tmp_path, [1.2] * 20, first=30)
    change = only_change(history)
    assert (change.status, change.cause) == ("dismissed", "machine")
    assert suspicions(history) == []


def test_accuracy_that_never_moved_is_suspected_at_its_first_other_value(
    history: Engine, tmp_path: Path
) -> None:
    for night in range(9):
        run, _, end = run_lines(night)
        line = item_line(night, kind="accuracy")
        value = 0.97 if night < 8 else 0.0
        estimate = {"value": value, "low": None, "high": None, "unit": "fraction"}
        line["estimates"] = {"top1": estimate}
        write_lines(tmp_path / run_name(night), [run, line, end])
        add_run(history, tmp_path / run_name(night))
    change = only_change(history)
    assert change.first_run == change.found_run == run_name(8)
    assert (change.before, change.after) == (0.97, 0.0)
    assert change.is_worse


def test_two_searches_at_once_find_a_change_once(
    history: Engine, address: str, tmp_path: Path
) -> None:
    add(history, tmp_path, [*OLD, *[1.2] * 10])
    threads = [threading.Thread(target=scan, args=[open_history(address)]) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(read_changes(history)) == 1


def test_a_change_accepted_during_a_search_stays_accepted(
    history: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(history, tmp_path, [*OLD, *[1.2] * 10])
    number = only_change(history).id
    add(history, tmp_path, OLD, first=30)

    def accept_first(history: Engine, work: Callable[[Connection], None]) -> None:
        accept_changes(history, [number], "known", None)
        transact(history, work)

    monkeypatch.setattr(change_scan, "transact", accept_first)
    scan(history)
    assert read_changes(history)[0].status == "accepted"


def test_a_run_whose_clock_stepped_back_is_an_outlier_there(
    history: Engine, tmp_path: Path
) -> None:
    add(history, tmp_path, [*OLD, *[1.2] * 4])
    run, _, end = run_lines(24)
    early = "2026-01-05T12:00:00.000+00:00"
    line = item_line(24, ratio=1.2, time=early)
    line["estimates"] = {"latency_p50": line["estimates"]["latency_p50"]}
    write_lines(tmp_path / run_name(24), [{**run, "time": early}, line, {**end, "time": early}])
    add_run(history, tmp_path / run_name(24))
    add(history, tmp_path, [1.2] * 8, first=25)
    change = only_change(history)
    assert change.first_run == run_name(20)
    assert change.ratio == pytest.approx(1.2, rel=0.01)


@pytest.mark.parametrize("count", [1, 2, 5, 9, 12, 40])
def test_the_sight_of_a_series_of_any_length_is_a_number(
    history: Engine, tmp_path: Path, count: int
) -> None:
    add(history, tmp_path, OLD[:1] + [1.3] * (count - 1))
    (sight,) = sights(history, [1])
    assert 3 <= sight.points <= 15 + 9
    assert 0.02 <= sight.change < 1e9
    assert 0.02 <= sight.with_software < 1e9


def test_a_step_with_a_version_is_suspected_at_once(history: Engine, tmp_path: Path) -> None:
    add(history, tmp_path, OLD, launch={"command": ["x"], "lock": ["onnxruntime==1.30.0"]})
    new = {"command": ["x"], "lock": ["onnxruntime==1.31.0"]}
    add(history, tmp_path, [1.1], first=20, launch=new, versions={})
    assert only_change(history).first_run == run_name(20)
    add(history, tmp_path, [1.1] * 5, first=21, launch=new, versions={})
    change = only_change(history)
    assert change.first_run == run_name(20)
    assert change.ratio == pytest.approx(1.1, rel=0.003)
