"""What a GPU's driver says and what follows, on values as nvidia-smi and NVML's documentation show
them.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_mlms.errors import InvalidRun, Unavailable
from pytest_mlms.host.gpu_state import GpuMonitor, GpuReading, gpu_faults, gpu_notes, open_gpu
from pytest_mlms.upgrade.criteria import watch_device
from pytest_mlms.upgrade.interleave import AgentPair

pynvml = pytest.importorskip("pynvml")

IDLE = GpuReading(False, 345, 2619, 74.6, 700.0, 31, (), (), ())
BUSY = GpuReading(True, 1980, 2619, 412.3, 700.0, 47, (), (), (101, 102))


@dataclass
class Process:
    pid: int


class Recorded:
    """The driver of an H200 with recorded answers, and pynvml's own constants."""

    def __init__(self, **answers: Any) -> None:
        self.answers = {
            "nvmlDeviceGetClockInfo": lambda handle, kind: {1: 1980, 2: 2619}[kind],
            "nvmlDeviceGetPowerUsage": lambda handle: 412_300,
            "nvmlDeviceGetEnforcedPowerLimit": lambda handle: 700_000,
            "nvmlDeviceGetTemperature": lambda handle, sensor: 47,
            "nvmlDeviceGetCurrentClocksThrottleReasons": lambda handle: 0,
            "nvmlDeviceGetComputeRunningProcesses": lambda handle: [Process(102), Process(101)],
            "nvmlDeviceGetHandleByIndex": lambda index: f"gpu {index}",
            "nvmlDeviceGetHandleByUUID": lambda uuid: f"gpu {uuid}",
            **answers,
        }

    def __getattr__(self, name: str) -> Any:
        return self.answers.get(name) or getattr(pynvml, name)


def refuse(*_: Any) -> Any:
    raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)


def test_a_reading_is_in_mhz_watts_degrees_and_words() -> None:
    assert GpuMonitor(Recorded(), 0).read(loaded=True) == BUSY
    hot = (
        pynvml.nvmlClocksThrottleReasonSwThermalSlowdown | pynvml.nvmlClocksThrottleReasonSwPowerCap
    )
    read = GpuMonitor(
        Recorded(nvmlDeviceGetCurrentClocksThrottleReasons=lambda handle: hot), 0
    ).read(loaded=True)
    assert read.throttled == ("it was too hot (driver)",)
    assert read.capped == ("it was at its power limit",)


def test_what_a_gpu_does_not_tell_is_none_and_no_fault() -> None:
    driver = Recorded(nvmlDeviceGetPowerUsage=refuse, nvmlDeviceGetComputeRunningProcesses=refuse)
    read = GpuMonitor(driver, 0).read(loaded=True)
    assert (read.power, read.processes) == (None, None)
    assert gpu_faults([replace(IDLE, processes=None), read], {101, 102}) == []


def test_the_gpu_is_that_of_cuda_visible_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    handles = []
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3, GPU-8f1c")
    for index in (0, 1):
        handles.append(GpuMonitor(Recorded(), index)._handle)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    handles.append(GpuMonitor(Recorded(), 1)._handle)
    assert handles == ["gpu 3", "gpu GPU-8f1c", "gpu 1"]


def test_a_quiet_run_has_no_fault() -> None:
    assert gpu_faults([IDLE, BUSY, replace(BUSY, sm_clock=1965), BUSY], {101, 102}) == []


@pytest.mark.parametrize(
    ("readings", "says"),
    [
        (
            [IDLE, replace(BUSY, throttled=("it was too hot (driver)",))],
            "throttled: it was too hot (driver)",
        ),
        ([replace(IDLE, processes=(77,)), BUSY], "other processes were on it: 77"),
        ([IDLE, replace(BUSY, processes=(101, 102, 77))], "other processes were on it: 77"),
        ([IDLE, BUSY, replace(BUSY, sm_clock=1410)], "its clock changed from 1980 to 1410 MHz"),
        (
            [IDLE, BUSY, replace(BUSY, power_limit=500.0)],
            "its power limit was set anew: 500 W and 700 W",
        ),
    ],
)
def test_what_can_not_be_trusted_says_why(readings: list[GpuReading], says: str) -> None:
    assert gpu_faults(readings, {101, 102}) == [says]


def test_what_is_told_of_a_gpu_is_how_it_was_at_work() -> None:
    assert gpu_notes([IDLE, BUSY]) == ["GPU 1980 MHz, 412 W, 47 °C"]
    later = replace(BUSY, sm_clock=1965, temperature=51, capped=("it was at its power limit",))
    assert gpu_notes([IDLE, BUSY, later]) == [
        "GPU 1965 to 1980 MHz, 412 W, 47 to 51 °C",
        "it was at its power limit",
    ]
    assert gpu_notes([IDLE, replace(BUSY, sm_clock=None, power=None, temperature=None)]) == []


def test_every_look_at_a_gpu_is_kept_and_a_foreign_process_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    processes = iter([[], [Process(101), Process(102)], [Process(101), Process(102), Process(77)]])
    driver = Recorded(nvmlDeviceGetComputeRunningProcesses=lambda handle: next(processes))
    monkeypatch.setattr(
        "pytest_mlms.upgrade.criteria.open_gpu",
        lambda device: contextlib.nullcontext(GpuMonitor(driver, 0)),
    )
    a, b = (SimpleNamespace(agent=SimpleNamespace(process=Process(pid))) for pid in (101, 102))
    noted: dict[str, Any] = {}
    with watch_device("cuda:0", noted.update) as look:
        assert look(AgentPair(a, b)) == []  # type: ignore[arg-type]
        assert look(AgentPair(a, b)) == ["other processes were on it: 77"]  # type: ignore[arg-type]
    assert [one["processes"] for one in noted["gpu_readings"]] == [(), (101, 102), (77, 101, 102)]
    assert noted["gpu_notes"] == ["GPU 1980 MHz, 412 W, 47 °C"]


def test_a_gpu_that_somebody_uses_is_not_measured_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Recorded(nvmlDeviceGetComputeRunningProcesses=lambda handle: [Process(77)])
    monkeypatch.setattr(
        "pytest_mlms.upgrade.criteria.open_gpu",
        lambda device: contextlib.nullcontext(GpuMonitor(driver, 0)),
    )
    with pytest.raises(
        InvalidRun, match="device cuda:0 is not free: other processes were on it: 77"
    ):
        watch_device("cuda:0", lambda **_: None).__enter__()


def test_in_a_container_two_processes_of_other_numbers_are_ours_and_three_are_not() -> None:
    assert gpu_faults([IDLE, replace(BUSY, processes=(9001, 9002))], {11, 12}) == []
    assert gpu_faults([IDLE, replace(BUSY, processes=(9001, 9002, 9003))], {11, 12}) != []


def test_an_idle_clock_is_not_compared_with_that_of_work() -> None:
    assert gpu_faults([IDLE, BUSY], {101, 102}) == []


def test_a_machine_without_a_driver_says_so() -> None:
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        with pytest.raises(
            Unavailable, match="device cuda:0: the NVIDIA driver can't be asked for its state"
        ):
            open_gpu("cuda:0").__enter__()
    else:
        pynvml.nvmlShutdown()
        with open_gpu("cuda:0") as gpu:
            assert gpu.read(loaded=False).sm_clock
