"""Moving all threads of an agent, those that a framework bound to cores with them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from pytest_mlms.agent import affinity
from pytest_mlms.agent.affinity import are_beyond, move_threads

OWN = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
pytestmark = pytest.mark.skipif(len(OWN) < 2, reason="there are no two cores to move between")

AGENT = """
import os, subprocess, sys, threading
def bind():
    os.sched_setaffinity(0, {int(sys.argv[1])})
    print(threading.get_native_id(), flush=True)
    threading.Event().wait()
threading.Thread(target=bind, daemon=True).start()
child = subprocess.Popen(["sleep", "600"])
print(child.pid, flush=True)
child.wait()
"""


@pytest.fixture
def threads() -> Iterator[list[int]]:
    """A process, a thread of it that is bound to the first core, and a child process."""
    command = [sys.executable, "-c", AGENT, str(OWN[0])]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout
        told = {int(process.stdout.readline()) for _ in range(2)}
        bound = told & {int(name) for name in os.listdir(f"/proc/{process.pid}/task")}
        yield [process.pid, *bound, *(told - bound)]
        os.killpg(process.pid, 9)


def cores_of(threads: list[int]) -> list[set[int]]:
    return [os.sched_getaffinity(thread) for thread in threads]


def test_all_threads_are_moved_and_bound_ones_stay_bound(threads: list[int]) -> None:
    first, second = OWN[:2]
    group = threads[0]
    os.sched_setaffinity(group, {first, second})
    os.sched_setaffinity(threads[2], {first, second})
    move_threads(group, {first: second, second: first})
    assert cores_of(threads) == [{first, second}, {second}, {first, second}]
    assert not are_beyond(group, {first, second})
    assert are_beyond(group, {first})


def test_threads_that_start_while_others_are_moved_are_moved_too(
    threads: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = OWN[:2]
    for thread in threads:
        os.sched_setaffinity(thread, {first})
    lists = iter([threads[:1], threads, threads])
    monkeypatch.setattr(affinity, "_threads_of", lambda group: set(next(lists)))
    move_threads(threads[0], {first: second})
    assert cores_of(threads) == [{second}] * 3


def test_threads_that_have_ended_need_no_move(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(affinity, "_threads_of", lambda group: {1 << 22})
    move_threads(1, {OWN[0]: OWN[1]})
    assert not are_beyond(1, OWN)
