"""The probe ``perf``: CPU counters by perf_event_open."""

from __future__ import annotations

import errno
import os
import re
import threading
import time
from typing import Any

import pytest
from mlms_predictors._run.probe import Probe, ProbeUnavailable
from mlms_predictors._run.probes import open_probe, perf

from tests.support.probes import linux, refusal, values

SPENT = 0.02  # seconds of CPU time of each thread


def perf_or_skip() -> Probe:
    """Return the probe, not entered; skip where this machine does not permit it."""
    try:
        with open_probe("perf", "cpu", "hardware"):
            pass
    except ProbeUnavailable as reason:
        pytest.skip(str(reason))
    return open_probe("perf", "cpu", "hardware")


@linux
def test_software_events_are_counted_and_missing_events_have_reasons() -> None:
    with perf_or_skip() as probe:
        probe.between()
        sum(range(100_000))
        probe.between()
    clock = values(probe, "task-clock")
    assert clock[1] > clock[0]
    found = {series.name for series in probe.series}
    assert found | set(probe.missing) == {event.name for event in perf.EVENTS}
    assert all(probe.missing.values())


@linux
def test_threads_that_were_there_and_new_threads_are_counted() -> None:
    ready = threading.Event()
    go = threading.Event()

    def spin() -> None:
        ready.set()
        go.wait()
        began = time.thread_time()
        while time.thread_time() < began + SPENT:
            pass

    probe = perf_or_skip()
    old = threading.Thread(target=spin)
    old.start()
    ready.wait()
    with probe:
        probe.between()
        new = threading.Thread(target=spin)
        new.start()
        go.set()
        old.join()
        new.join()
        probe.between()
    clock = values(probe, "task-clock")
    assert (clock[1] - clock[0]) / 1e9 > 1.9 * SPENT


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (errno.ENOENT, "no such counter"),
        (errno.EACCES, r"perf_event_paranoid is .*, it takes 2 or less"),
        (errno.ENOSYS, "no perf_event_open"),
    ],
)
def test_an_error_of_the_kernel_becomes_a_reason(
    monkeypatch: pytest.MonkeyPatch, number: int, reason: str
) -> None:
    def refuse(self: Any, *arguments: Any) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(perf.Perf, "_call", refuse)
    monkeypatch.setattr("platform.system", lambda: "Linux")
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr(perf, "_threads", lambda: [1])
    assert re.search(reason, refusal("perf"))


@linux
def test_user_space_is_counted_where_the_kernel_is_not_permitted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    perf_or_skip()
    real = perf.Perf._call

    def paranoid(self: Any, event: perf.PerfEvent, thread: int, flags: int) -> int:
        if not flags & perf._EXCLUDE_KERNEL:
            raise PermissionError(errno.EACCES, "Permission denied")
        return int(real(self, event, thread, flags))

    monkeypatch.setattr(perf.Perf, "_call", paranoid)
    with open_probe("perf", "cpu", "hardware") as probe:
        probe.between()
    assert "task-clock" in {series.name for series in probe.series}
    assert re.search("not permitted: .* it takes 1 or less", probe.missing["context-switches"])


@linux
def test_too_many_threads_are_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    perf_or_skip()
    monkeypatch.setattr(perf, "_MOST_FILES", 0)
    with open_probe("perf", "cpu", "hardware") as probe:
        pass
    assert any("too many threads (" in reason for reason in probe.missing.values())


def test_what_is_counted_between_two_readings_is_scaled_to_their_time() -> None:
    count = perf.Count([0, 1])
    assert count.add([(100, 10, 10), (50, 10, 5)]) == 200
    assert count.add([(100, 20, 10), (50, 10, 5)]) is None, "the first had no turn"
    assert count.share == 0.75
    assert count.add([(110, 30, 20), (50, 10, 5)]) == 220, "and its time is made good"
    assert count.add([(110, 40, 21), (50, 10, 5)]) == 220, "a layer without a miss has none"
