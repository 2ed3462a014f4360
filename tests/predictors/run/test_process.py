"""This process as the kernel sees it."""

from __future__ import annotations

import json
import mmap
import os
import subprocess
import sys
import threading
import time
import zlib
from pathlib import Path

import pytest
from mlms_predictors._run import process

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux's /proc")


def resident() -> int:
    """Return the bytes that are resident now, without pages of programs."""
    peak = process.PeakMemory()
    peak.begin()
    return peak.held


@linux
def test_a_new_peak_of_memory_begins_after_a_reset() -> None:
    block = bytearray(os.urandom(1 << 20)) * 64
    assert process.peak_rss() >= process.rss()
    before = process.peak_rss()
    size = len(block)
    del block
    if not process.reset_peak_rss():
        pytest.skip("this kernel does not reset the peak")
    assert process.peak_rss() < before - size // 2


def test_memory_is_told_where_there_is_no_proc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_read_status", lambda *_: None)
    assert process.rss() == process.peak_rss() > 1 << 20


@linux
@pytest.mark.parametrize("is_program", [True, False])
def test_pages_of_programs_are_no_memory_and_those_of_weights_are(
    tmp_path: Path, is_program: bool
) -> None:
    size = 32 << 20
    path = tmp_path / "mapped"
    path.write_bytes(os.urandom(1 << 20) * 32)
    peak = process.PeakMemory()
    if not peak.begin():
        pytest.skip("this kernel does not reset the peak")
    all_before, before = process.rss(), resident()
    rights = mmap.PROT_READ | (mmap.PROT_EXEC if is_program else 0)
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), size, flags=mmap.MAP_PRIVATE, prot=rights)
    zlib.crc32(mapped)
    expected = 0 if is_program else size
    assert process.rss() - all_before == pytest.approx(size, abs=size / 4)
    assert resident() - before == pytest.approx(expected, abs=size / 4)
    assert peak.read() - before == pytest.approx(expected, abs=size / 4)
    if not is_program:
        mapped.close()
    assert peak.read() - before == pytest.approx(expected, abs=size / 4)


@linux
def test_pages_of_programs_that_the_kernel_takes_are_in_no_peak(tmp_path: Path) -> None:
    size = 32 << 20
    path = tmp_path / "mapped"
    path.write_bytes(os.urandom(1 << 20) * 32)
    rights = mmap.PROT_READ | mmap.PROT_EXEC
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), size, flags=mmap.MAP_PRIVATE, prot=rights)
    zlib.crc32(mapped)
    peak = process.PeakMemory()
    if not peak.begin():
        pytest.skip("this kernel does not reset the peak")
    before = resident()
    mapped.madvise(mmap.MADV_DONTNEED)
    assert peak.read() - before == pytest.approx(0, abs=size / 4)
    zlib.crc32(mapped)
    assert peak.read() - before == pytest.approx(0, abs=size / 4)


@linux
def test_a_peak_is_no_less_than_what_is_resident(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "peak_rss", lambda *_: 1 << 20)  # as it lags behind by some pages
    peak = process.PeakMemory()
    peak.begin()
    assert peak.read() == pytest.approx(resident(), abs=1 << 20)


@linux
def test_a_thread_is_held_to_cores() -> None:
    found: list[list[int] | None] = []
    core = min(process.cores() or [0])

    def hold() -> None:  # in a thread: the other ones keep their cores
        process.use_cores([core])
        found.append(process.cores())

    thread = threading.Thread(target=hold)
    thread.start()
    thread.join()
    assert found == [[core]]


MOVES = """
import itertools, json, os, subprocess, sys, threading
from mlms_predictors._run import process
first, second = json.loads(sys.argv[1])
ended = threading.Event()
def bind():
    os.sched_setaffinity(0, {first})
    ids.append(threading.get_native_id())
    bound.set()
    ended.wait()
os.sched_setaffinity(0, {first, second})
ids, bound = [os.getpid()], threading.Event()
thread = threading.Thread(target=bind)
thread.start()
bound.wait()
child = subprocess.Popen(["sleep", "60"])
ids.append(child.pid)
threads = process._threads_of_group
if sys.argv[2] == "late":  # all but one start while that is moved
    lists = itertools.chain([set(ids[:1])], itertools.repeat(set(ids)))
    process._threads_of_group = lambda: next(lists)
were_beyond = process.move_threads({first: second, second: first})
print(json.dumps([were_beyond, *[sorted(os.sched_getaffinity(each)) for each in ids]]))
ended.set()
child.kill()
process._threads_of_group = threads
print(json.dumps(process.move_threads({first: second})))
"""


@linux
@pytest.mark.parametrize("start", ["before", "late"])
def test_all_threads_and_children_are_moved_and_bound_ones_stay_bound(start: str) -> None:
    own = sorted(os.sched_getaffinity(0))
    if len(own) < 2:
        pytest.skip("there are no two cores to move between")
    command = [sys.executable, "-c", MOVES, json.dumps(own[:2]), start]
    found = subprocess.run(
        command, check=True, capture_output=True, text=True, start_new_session=True
    ).stdout
    moved, again = map(json.loads, found.splitlines())
    assert moved == [False, own[:2], own[1:2], own[:2]]
    assert again is True, "a thread that is on other cores than it is moved from is told"


@linux
def test_cores_that_the_system_does_not_give_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_setaffinity", lambda number, cores: None)
    monkeypatch.setattr(os, "sched_getaffinity", lambda number: {0, 1})
    with pytest.raises(OSError, match=r"asked for cores \[5\], the system gave \[0, 1\]"):
        process.use_cores([5])


@linux
def test_the_wait_for_a_core_only_grows() -> None:
    queue = process.QueueWait()
    before = queue.read()
    time.sleep(0)
    assert queue.read() >= before >= 0
    queue.close()


CROWDED = """
import hashlib, json, os, threading, time
from mlms_predictors._run import process

def compute(seconds):
    over = time.thread_time() + seconds
    while time.thread_time() < over:
        hashlib.sha256(bytes(1 << 20))  # which needs no lock of Python's

def waits(others_of):
    all_waits, of_others = process.QueueWait(), process.QueueWait(of_others=True)
    before = all_waits.read(), of_others.read()
    other = others_of()
    compute(0.3)
    other.join()
    return all_waits.read() - before[0], of_others.read() - before[1]

class Program:
    def __init__(self):
        self.number = os.fork()
        if not self.number:
            compute(0.3)
            os._exit(0)

    def join(self):
        os.waitpid(self.number, 0)

def own_thread():
    thread = threading.Thread(target=compute, args=(0.3,))
    thread.start()
    return thread

process.use_cores([min(os.sched_getaffinity(0))])
print(json.dumps([waits(own_thread), waits(Program)]))
"""


@linux
def test_on_one_core_the_wait_for_own_threads_is_none_and_that_for_a_program_is() -> None:
    command = [sys.executable, "-c", CROWDED]
    found = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    own, program = (
        [all_waits, all_waits - of_others] for all_waits, of_others in json.loads(found)
    )
    assert own[1] > 0.15, "the CPU time of the process's thread, of 0.3 s, is no wait"
    assert program[1] < 0.2 * program[0], "that of another program is"


def test_the_wait_is_zero_where_the_kernel_does_not_count_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(path: str, flags: int) -> int:
        raise FileNotFoundError(path)

    monkeypatch.setattr(os, "open", refuse)
    queue = process.QueueWait()
    assert not queue.available
    assert queue.read() == 0.0
    queue.close()


THREADS = """
import threading, time
from mlms_predictors._run import process
worked, ended = threading.Event(), threading.Event()

def work():
    over = time.thread_time() + 0.2
    while time.thread_time() < over:
        pass

def work_and_wait():
    work()
    worked.set()
    ended.wait()

busy = process.BusyThreads()
threads = [threading.Thread(target=target) for target in (work_and_wait, ended.wait)]
for thread in threads:
    thread.start()
work()
worked.wait()
print(busy.count())
ended.set()
"""


@linux
def test_threads_that_work_are_counted_and_those_that_wait_are_not() -> None:
    command = [sys.executable, "-c", THREADS]  # pytest-xdist has threads of its own here
    counted = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    if counted == "None\n":
        pytest.skip("this kernel tells no thread's time")
    assert counted == "2\n"
