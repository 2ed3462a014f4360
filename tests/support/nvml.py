"""A hand-written fake of NVML, which answers as NVIDIA documents it; no GPU is needed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

UUIDS = ("GPU-aa00", "GPU-bb11", "GPU-cc22", "GPU-8f1c")


class Process(NamedTuple):
    pid: int


class Memory(NamedTuple):
    total: int


class NVMLError(Exception):
    """The error that the driver's functions raise."""


class FakeNvml:
    """The module pynvml with a driver of four GPUs of the kind NVIDIA H200.

    Its attributes are the state that it tells; a function that is named in ``refused`` raises.
    """

    NVMLError = NVMLError
    NVML_CLOCK_SM = 1
    NVML_CLOCK_MEM = 2
    NVML_TEMPERATURE_GPU = 0
    nvmlClocksThrottleReasonSwPowerCap = 0x4
    nvmlClocksThrottleReasonHwSlowdown = 0x8
    nvmlClocksThrottleReasonSwThermalSlowdown = 0x20
    nvmlClocksThrottleReasonHwThermalSlowdown = 0x40
    nvmlClocksThrottleReasonHwPowerBrakeSlowdown = 0x80

    def __init__(self, refused: Sequence[str] = ()) -> None:
        self.refused = refused
        self.uuids: Sequence[str] = UUIDS
        self.throttle_reasons = 0
        self.pids: Sequence[int] = (102, 101)

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("nvml") and name in object.__getattribute__(self, "refused"):
            return refuse
        return object.__getattribute__(self, name)

    def nvmlInit(self) -> None:
        pass

    def nvmlShutdown(self) -> None:
        pass

    def nvmlSystemGetDriverVersion(self) -> str:
        return "580.1"

    def nvmlDeviceGetCount(self) -> int:
        return len(self.uuids)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:
        return self.uuids[index]

    def nvmlDeviceGetUUID(self, handle: str) -> str:
        return handle

    def nvmlDeviceGetName(self, handle: str) -> str:
        return "NVIDIA H200"

    def nvmlDeviceGetMemoryInfo(self, handle: str) -> Memory:
        return Memory(150 << 30)

    def nvmlDeviceGetClockInfo(self, handle: str, kind: int) -> int:
        clocks = {self.NVML_CLOCK_SM: 1980, self.NVML_CLOCK_MEM: 2619}
        return clocks[kind]

    def nvmlDeviceGetPowerUsage(self, handle: str) -> int:
        return 412_300

    def nvmlDeviceGetEnforcedPowerLimit(self, handle: str) -> int:
        return 700_000

    def nvmlDeviceGetTemperature(self, handle: str, sensor: int) -> int:
        return 47

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: str) -> int:
        return self.throttle_reasons

    def nvmlDeviceGetComputeRunningProcesses(self, handle: str) -> list[Process]:
        return [Process(pid) for pid in self.pids]


def refuse(*_: object) -> Any:
    raise NVMLError("Not Supported")
