"""The progress of a run, as a line."""

from __future__ import annotations

import pytest

from pytest_mlms.distribute.progress import Progress, remaining_seconds, summary
from pytest_mlms.distribute.queue import ItemTable
from pytest_mlms.distribute.workers import WorkerState
from tests.distribute.fakes import make_needs, make_worker


def table(seconds: dict[str, float]) -> ItemTable:
    return ItemTable(["a", "b", "c", "other"], [make_needs()], [0, 0, 0, -1], seconds)


def busy_worker(host: str, running: int, started: float, completed: int) -> WorkerState:
    worker = make_worker(host)
    worker.assigned.add_locked([running], frozenset())
    worker.assigned.started = started
    worker.assigned.completed = completed
    return worker


def test_the_line_says_what_is_done_where_what_runs_and_how_long_it_takes() -> None:
    items = table({"a": 10, "b": 10})
    items.queues[0].waiting.remove(0)
    items.unfinished = 2
    worker = busy_worker("gpu1", running=0, started=100, completed=1)
    line = summary(items, [worker], now=104)
    assert line == "1 of 3 done (gpu1 1); a on gpu1 (gw0) for 4 s; about 26 s left"


def test_only_some_running_items_are_named() -> None:
    workers = [busy_worker("gpu1", 0, started=0, completed=0) for _ in range(6)]
    line = summary(table({}), workers, now=1)
    assert line.count(" on gpu1 ") == 4
    assert line.endswith("; 2 more running")


def test_no_time_is_estimated_before_any_duration_is_known() -> None:
    items = table({})
    assert remaining_seconds(items, [busy_worker("gpu1", 0, 0, 0)], now=1) is None
    items.finish(0, 7)
    assert remaining_seconds(items, [], now=1) is None
    workers = [busy_worker("gpu1", 0, 0, 0), busy_worker("gpu2", 1, 0, 0)]
    assert remaining_seconds(items, workers, now=0) == (7 * 3 + 7 + 7) / 2


@pytest.mark.parametrize(("on_terminal", "expected"), [(True, [30, 60, 120]), (False, [120])])
def test_a_line_is_due_every_30_s_and_every_2_minutes_in_a_log(
    on_terminal: bool, expected: list[int]
) -> None:
    progress = Progress(now=0)
    times = [1, 30, 31, 60, 120]
    assert [now for now in times if progress.is_due(now, on_terminal)] == expected


@pytest.mark.parametrize(
    ("seconds", "expected"), [(0.2, "1 s"), (89, "89 s"), (600, "10 min"), (9000, "2.5 h")]
)
def test_the_remaining_time_is_in_a_readable_unit(seconds: float, expected: str) -> None:
    items = table({"a": seconds, "b": 0, "c": 0})
    items.queues[0].waiting.clear()
    line = summary(items, [busy_worker("gpu1", 0, started=0, completed=0)], now=0)
    assert line.endswith(f"about {expected} left")
