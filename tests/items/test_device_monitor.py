"""Monitor of a device between rounds and processes, above a stub of the GPU's driver."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_mlms.core.errors import InvalidRun, Unavailable
from pytest_mlms.decide.upgrade.agents import AgentPair
from pytest_mlms.items.device_monitor import DeviceMonitor, monitor_device, weights_in_l2
from pytest_mlms.measure.agent.predictor import Predictor
from pytest_mlms.provide.host import gpu_monitor
from tests.support.driver import H200, Driver

pytest.importorskip("pynvml")

MIB = 1 << 20
L2 = 60 * MIB
COLD = "L2 cold (97.0 MiB of 60.0 MiB)"
OURS = (os.getpid(), os.getppid())
"""The processes of both sides."""


KEPT = """
import subprocess, sys
with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
    print(child.pid, flush=True)
    sys.stdin.read()
"""
"""A process that started another one; both end with their input."""


class Monitored:
    """A monitor of cuda:0, what it noted, and processes that stand for agents."""

    def __init__(self, driver: Driver, monitor: DeviceMonitor, noted: dict[str, Any]) -> None:
        self.driver = driver
        self.monitor = monitor
        self.noted = noted

    def round(self, clocks: Sequence[int] = (1980, 1980), pids: Sequence[int] = OURS) -> list[str]:
        """Give each side a turn with its clock; return why the round can't be trusted."""
        a, b = map(StandIn, OURS)
        with self.monitor.watching(contextlib.nullcontext)(AgentPair(a, b, {})) as pair:
            for predictor, clock in zip((pair.a, pair.b), clocks, strict=True):
                self.says(pids, f"clock.1 {clock}")
                call_back(predictor)("turn", {})
            return self.monitor.check()

    def says(self, pids: Sequence[int], *lines: str) -> None:
        self.driver.says(H200, *lines, *[f"process {pid} 4096" for pid in pids])


class StandIn(Predictor):
    """A predictor of whose agent there is only the process id."""

    def __init__(self, pid: int) -> None:
        vars(self).update(agent=SimpleNamespace(pid=pid), l2_bytes=L2)


def call_back(predictor: Predictor) -> Callable[[str, Mapping[str, Any]], None]:
    found = predictor.agent.after_calls
    assert found is not None
    return found


@pytest.fixture
def watched(driver: Driver) -> Iterator[Monitored]:
    noted: dict[str, Any] = {}
    with monitor_device("cuda:0", noted.update, 97 * MIB) as monitor:
        yield Monitored(driver, monitor, noted)


def test_a_device_is_trusted_while_our_processes_alone_are_on_it(watched: Monitored) -> None:
    assert watched.round() == []
    idle, busy = watched.noted["gpu_readings"]
    assert (idle.loaded, busy.loaded) == (False, True)
    assert busy.clocks == {"a": 1980, "b": 1980}
    assert watched.noted["gpu_notes"] == ["GPU 1980 MHz, 412 W, 47 °C", COLD]
    assert watched.monitor.problems() == []


def test_rounds_are_trusted_in_which_both_sides_had_the_same_clock(watched: Monitored) -> None:
    assert watched.round() == watched.round((1410, 1410)) == []
    assert watched.noted["gpu_notes"] == ["GPU 1410 to 1980 MHz, 412 W, 47 °C", COLD]
    problem = "its clock was 1980 MHz in A's turns and 1410 MHz in B's"
    assert watched.round((1980, 1410)) == [problem]
    assert watched.round() == [problem]


@pytest.mark.parametrize(("seconds", "busy"), [(2.0, 0.31), (0.5, None)])
def test_calls_for_which_the_gpu_waits_are_called_host_bound(
    watched: Monitored, seconds: float, busy: float | None
) -> None:
    told = "host-bound: kernels ran for 31 % of the time, the rest is the host's and copies"
    with watched.monitor.watching(contextlib.nullcontext)(StandIn(OURS[0])) as predictor:
        watched.says(OURS[:1], "utilization 7 1")
        call_back(predictor)("run", {"stop": {"seconds": seconds}})
        watched.says(OURS[:1], "utilization 31 9")
        call_back(predictor)("run", {"stop": {"seconds": seconds}})
        watched.says(OURS[:1], "utilization 99 9")
        call_back(predictor)("load_run", {})
    assert watched.noted["gpu_readings"][-1].busy == busy
    facts = "GPU 1980 MHz, 412 W, 47 °C"
    if busy is None:
        assert watched.noted["gpu_notes"] == [facts, COLD]
    else:
        assert watched.noted["gpu_notes"] == [f"{facts}, 31 % busy", COLD, told]
        assert watched.monitor.with_doubts("slow") == f"slow; {told}"


@pytest.mark.parametrize(
    ("size", "told"),
    [(30, "L2 hot (30.0 MiB of 60.0 MiB)"), (31, "L2 partly hot (31.0 MiB of 60.0 MiB)")],
)
def test_weights_that_fit_stay_in_the_cache_of_the_gpu(size: int, told: str) -> None:
    assert weights_in_l2(size * MIB, L2) == told
    assert weights_in_l2(size * MIB, 0) == ""


def test_another_process_between_rounds_is_a_reason_not_to_trust_the_round(
    watched: Monitored,
) -> None:
    assert watched.round() == []
    assert watched.round(pids=(*OURS, 77)) == ["other processes were on it: 77"]
    assert len(watched.noted["gpu_readings"]) == 3


def test_the_last_process_is_read_when_it_ends_or_its_problems_are_asked_for(
    watched: Monitored,
) -> None:
    predictor = StandIn(OURS[0])
    opening = watched.monitor.watching(contextlib.nullcontext)
    with opening(predictor):
        pass
    assert len(watched.noted["gpu_readings"]) == 2
    with opening(predictor):
        watched.says(OURS[:1], "reasons 0x40")
        assert watched.monitor.problems() == ["throttled: it was too hot (hardware)"]
    assert len(watched.noted["gpu_readings"]) == 3


def test_a_gpu_that_is_in_use_is_not_measured(driver: Driver) -> None:
    driver.says(H200, "process 77 4096")
    message = "device cuda:0 is not free: other processes were on it: 77; end what uses it"
    with pytest.raises(InvalidRun, match=message), monitor_device("cuda:0", print):
        pass
    assert driver.users == 0


def test_a_gpu_that_an_unlisted_program_keeps_busy_is_not_measured(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_monitor, "_SETTLED", 0.1)
    driver.says(H200, "utilization 97 41")
    message = "kernels run for 97 % of the time, of a program that the driver doesn't list; end"
    with pytest.raises(InvalidRun, match=message), monitor_device("cuda:0", print):
        pass


def test_a_gpu_is_free_once_its_utilization_forgets_what_ran_before(driver: Driver) -> None:
    driver.says(H200, "utilization 97 41")
    forgetting = threading.Timer(0.2, driver.says, [H200, "utilization 4 1"])
    forgetting.start()
    with monitor_device("cuda:0", print) as monitor:
        assert "utilization 4 1" in driver.script.read_text()
        assert monitor.problems() == []
    forgetting.join()


def test_a_gpu_that_is_still_hot_while_it_is_idle_may_be_measured(driver: Driver) -> None:
    driver.says(H200, "reasons 0x60")
    with monitor_device("cuda:0", print) as monitor:
        assert monitor.problems() == []


def test_an_agent_that_another_worker_keeps_is_no_other_process(driver: Driver) -> None:
    kept = [sys.executable, "-c", KEPT, "/site/mlms_predictors/_run/worker.py"]
    with subprocess.Popen(kept, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        driver.says(H200, f"process {process.pid} 4096", f"process {child} 4096")
        with monitor_device("cuda:0", print) as monitor:
            assert monitor.problems() == []


@pytest.mark.parametrize("line", ["processes !4", ""])
def test_a_driver_that_lists_not_even_ours_is_a_doubt(watched: Monitored, line: str) -> None:
    watched.driver.says(H200, line)
    with watched.monitor.watching(contextlib.nullcontext)(StandIn(OURS[0])):
        pass
    doubt = "whether other programs were on the GPU isn't known: its driver doesn't list them"
    assert watched.monitor.with_doubts() == doubt


def test_a_driver_that_cannot_be_asked_is_a_doubt_where_it_is_not_needed(driver: Driver) -> None:
    driver.says("init !9", H200)
    noted: dict[str, Any] = {}
    with monitor_device("cuda:0", noted.update, is_needed=False) as monitor:
        assert monitor.problems() == []
    assert noted["gpu_notes"] == [monitor.with_doubts()]
    assert "whether the GPU was slowed down isn't known: device cuda:0: " in monitor.doubts
    with pytest.raises(Unavailable), monitor_device("cuda:0", noted.update):
        pass


@pytest.mark.parametrize("device", ["cpu", "npu:0"])
def test_another_device_has_nothing_to_read_and_is_always_trusted(device: str) -> None:
    noted: dict[str, Any] = {}
    with monitor_device(device, noted.update) as monitor:
        assert monitor.check_idle() == []
        assert monitor.check() == []
    assert monitor.notes == []
    assert noted == {}
