"""Monitor of a device between rounds, tested with hand-written fakes of the GPU."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pytest_mlms.errors import InvalidRun
from pytest_mlms.host.gpu_monitor import GpuMonitor, GpuReading
from pytest_mlms.upgrade.agents import AgentPair
from pytest_mlms.upgrade.device_monitor import DeviceMonitor, monitor_device

IDLE = GpuReading(False, 345, 2619, 74.6, 700.0, 31, (), (), ())
BUSY = GpuReading(True, 1980, 2619, 412.3, 700.0, 47, (), (), (101, 102))
TAKEN = replace(BUSY, processes=(77, 101, 102))


class FakeGpu:
    """A GPU with readings that are prepared."""

    def __init__(self, readings: Sequence[GpuReading]) -> None:
        self.readings = list(readings)

    def read(self, loaded: bool) -> GpuReading:
        reading = self.readings.pop(0)
        assert reading.loaded is loaded
        return reading


def monitor_of(*readings: GpuReading) -> tuple[DeviceMonitor, dict[str, Any]]:
    """Return a monitor of these readings, and the fields that it notes."""
    noted: dict[str, Any] = {}
    gpu = cast(GpuMonitor, FakeGpu(readings))
    return DeviceMonitor(gpu, noted.update), noted


def fake_pair() -> AgentPair:
    return cast(AgentPair, SimpleNamespace(pids={101, 102}))


def test_a_device_is_trusted_while_our_processes_alone_are_on_it() -> None:
    monitor, noted = monitor_of(IDLE, BUSY)
    assert monitor.check_idle() == []
    assert monitor.check(fake_pair()) == []
    assert noted["gpu_readings"] == [IDLE, BUSY]
    assert noted["gpu_notes"] == monitor.notes == ["GPU 1980 MHz, 412 W, 47 °C"]


def test_another_process_between_rounds_is_a_reason_not_to_trust_the_round() -> None:
    monitor, noted = monitor_of(IDLE, BUSY, TAKEN)
    monitor.check_idle()
    monitor.check(fake_pair())
    assert monitor.check(fake_pair()) == ["other processes were on it: 77"]
    assert noted["gpu_readings"] == [IDLE, BUSY, TAKEN]


def test_a_gpu_that_is_in_use_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = FakeGpu([replace(IDLE, processes=(77,))])
    monkeypatch.setattr(
        "pytest_mlms.upgrade.device_monitor.open_gpu", lambda device: contextlib.nullcontext(gpu)
    )
    message = "device cuda:0 is not free: other processes were on it: 77; end what uses it"
    with pytest.raises(InvalidRun, match=message), monitor_device("cuda:0", print):
        pass


def test_a_cpu_has_nothing_to_read_and_is_always_trusted() -> None:
    noted: dict[str, Any] = {}
    with monitor_device("cpu", noted.update) as monitor:
        assert monitor.check_idle() == []
        assert monitor.check(fake_pair()) == []
    assert monitor.notes == []
    assert noted == {}
