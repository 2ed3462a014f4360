"""What is said of a run while it goes on."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from pytest_mlms.distribute.messages import Link
from pytest_mlms.distribute.progress import Progress, remaining, summary
from pytest_mlms.distribute.queue import ItemTable
from pytest_mlms.distribute.workers import WorkerState


def items(seconds: dict[str, float]) -> ItemTable:
    return ItemTable(
        ["a", "b", "c", "other"], [{"model": {"framework": "x"}}], [0, 0, 0, -1], seconds
    )


def seat(name: str, running: int, since: float, done: int) -> WorkerState:
    node: Any = SimpleNamespace(gateway=SimpleNamespace(id="gw0"), shutting_down=False)
    made = WorkerState(node, remote=False, host={"host": name}, since=since, done=done)
    made.sent.append(running)
    made.ours[running] = frozenset()
    return made


def test_the_line_says_what_is_done_where_what_runs_and_how_long_it_takes() -> None:
    of_run = items({"a": 10, "b": 10})
    of_run.queues[0].waiting.remove(0)
    of_run.left = 2
    line = summary(of_run, [seat("gpu1", 0, since=100, done=1)], now=104)
    assert line == "1 of 3 done (gpu1 1); a on gpu1 (gw0) for 4 s; about 26 s left"


def test_nobody_guesses_before_anything_is_known() -> None:
    of_run = items({})
    assert remaining(of_run, [seat("gpu1", 0, 0, 0)], now=1) is None
    of_run.took(0, 7)
    assert remaining(of_run, [], now=1) is None
    assert (
        remaining(of_run, [seat("gpu1", 0, 0, 0), seat("gpu2", 1, 0, 0)], now=0)
        == (7 * 3 + 7 + 7) / 2
    )


def test_a_line_comes_now_and_then_and_seldom_in_a_log() -> None:
    progress, log = Progress(True, now=0), Progress(False, now=0)
    assert [progress.due(now) for now in (1, 30, 31, 60)] == [False, True, False, True]
    assert [log.due(now) for now in (1, 30, 31, 60, 120)] == [False, False, False, False, True]


def test_a_worker_is_silent_from_its_last_word_and_longer_at_its_start() -> None:
    of_worker = seat("gpu1", 0, 0, 0)
    of_worker.excuse(100)
    assert of_worker.silence(200) == 20
    of_worker.link = cast("Link", SimpleNamespace(heard=150))
    assert of_worker.silence(200) == 50
    of_worker.excuse(190)
    assert of_worker.silence(200) == 10
