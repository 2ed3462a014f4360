"""The progress of a run, as a line."""

from __future__ import annotations

import pytest

from pytest_mlms.distribute.progress import Progress, remaining_seconds, summary
from pytest_mlms.distribute.queue import ItemTable
from pytest_mlms.distribute.workers import WorkerState
from tests.distribute.fakes import make_needs, make_worker


def table(seconds: dict[str, float]) -> ItemTable:
    """Return three items of a manifest and another test."""
    ids = ["a", "b", "c", "other"]
    rows = [0, 0, 0, -1]
    return ItemTable(ids, [make_needs()], rows, seconds)


def busy_worker(item: int = 0, host: str = "gpu1") -> WorkerState:
    """Return a worker that runs an item since the time 0."""
    worker = make_worker(host)
    worker.assigned.add_locked([item], frozenset())
    worker.assigned.started = 0
    return worker


def test_the_line_says_what_is_done_where_what_runs_and_how_long_it_takes() -> None:
    items = table({"a": 10, "b": 10})
    items.queues[0].waiting.remove(0)
    items.unfinished = 2
    worker = busy_worker(item=0)
    worker.assigned.completed = 1
    line = summary(items, [worker], now=4)
    assert line == "1 of 3 done (gpu1 1); a on gpu1 (gw0) for 4 s; about 26 s left"


def test_only_some_running_items_are_named() -> None:
    workers = [busy_worker() for _ in range(6)]
    line = summary(table({}), workers, now=1)
    assert line.count(" on gpu1 ") == 4
    assert line.endswith("; 2 more running")


def test_no_time_is_estimated_before_any_duration_is_known() -> None:
    items = table({})
    assert remaining_seconds(items, [busy_worker()], now=1) is None


def test_no_time_is_estimated_while_nothing_runs() -> None:
    items = table({"a": 7})
    assert remaining_seconds(items, [], now=1) is None


def test_items_of_unknown_duration_are_expected_to_take_the_mean() -> None:
    items = table({"a": 7})
    workers = [busy_worker(0), busy_worker(1, "gpu2")]
    waiting = 3 * 7
    running = 2 * 7
    assert remaining_seconds(items, workers, now=0) == (waiting + running) / 2


@pytest.mark.parametrize(("on_terminal", "expected"), [(True, [30, 60, 120]), (False, [120])])
def test_a_line_is_due_every_30_s_and_every_2_minutes_in_a_log(
    on_terminal: bool, expected: list[int]
) -> None:
    progress = Progress(now=0)
    due = []
    for now in (1, 30, 31, 60, 120):
        if progress.is_due(now, on_terminal):
            due.append(now)
    assert due == expected


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0.2, "1 s"),
        (89, "89 s"),
        (600, "10 min"),
        (9000, "2.5 h"),
    ],
)
def test_the_remaining_time_is_in_a_readable_unit(seconds: float, expected: str) -> None:
    items = table({"a": seconds})
    items.queues[0].waiting.clear()
    line = summary(items, [busy_worker()], now=0)
    assert line.endswith(f"about {expected} left")
