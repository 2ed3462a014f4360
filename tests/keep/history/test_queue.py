"""The queue of runs that wait for a history."""

from __future__ import annotations

import threading
from pathlib import Path

import filelock
import pytest

from pytest_mlms.keep.history import queue as queues
from pytest_mlms.keep.history.queue import Queue, Queued, queued_folders

FILE = "history-queue.jsonl"


def test_runs_wait_in_their_order_each_once(tmp_path: Path) -> None:
    queue = Queue(tmp_path, "a.sqlite")
    for folder in ("2", "1", "2"):
        queue.add(folder)
    assert queue.folders() == ["2", "1"]
    queue.remove("2")
    assert queue.folders() == ["1"]


def test_a_run_may_wait_for_two_histories(tmp_path: Path) -> None:
    queue = Queue(tmp_path, "a.sqlite")
    other = Queue(tmp_path, "b.sqlite")
    queue.add("1")
    other.add("1")
    queue.remove("1")
    assert queue.folders() == []
    assert queue.others() == [Queued("1", "b.sqlite")]
    assert queued_folders(tmp_path) == {"1"}


def test_an_empty_queue_has_no_file(tmp_path: Path) -> None:
    queue = Queue(tmp_path, "a.sqlite")
    queue.remove("1")
    assert not (tmp_path / FILE).exists()
    queue.add("1")
    queue.remove("1")
    assert not (tmp_path / FILE).exists()


def test_a_refused_run_waits_for_a_person_until_it_is_queued_again(tmp_path: Path) -> None:
    queue = Queue(tmp_path, "a.sqlite")
    queue.add("1")
    queue.add("2")
    queue.set_aside("1")
    assert queue.folders() == ["2"]
    assert queue.folders(with_refused=True) == ["1", "2"]
    assert queued_folders(tmp_path) == {"1", "2"}  # so that --mlms-keep leaves it
    queue.add("1")
    assert queue.folders() == ["1", "2"]


def test_a_line_that_is_cut_off_costs_no_other_run(tmp_path: Path) -> None:
    queue = Queue(tmp_path, "a.sqlite")
    queue.add("1")
    with (tmp_path / FILE).open("a") as file:
        file.write('{"folder": "2", "hist')
    queue.add("3")
    assert queue.folders() == ["1", "3"]


def test_threads_that_queue_at_once_lose_no_run(tmp_path: Path) -> None:
    names = [f"{number:02}" for number in range(16)]
    threads = []
    for name in names:
        queue = Queue(tmp_path, "a.sqlite")
        threads.append(threading.Thread(target=queue.add, args=(name,)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(Queue(tmp_path, "a.sqlite").folders()) == names


def test_a_queue_that_stays_locked_is_an_error_of_the_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queues, "_SECONDS", 0.01)
    other = filelock.FileLock(tmp_path / f".{FILE}.lock")
    with other, pytest.raises(OSError, match="locked by another process"):
        Queue(tmp_path, "a.sqlite").add("1")
