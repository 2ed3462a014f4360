"""What the driver says of a GPU while two stacks take turns on it, and whether what was measured
can be trusted.

Reads by nvidia-ml-py (extra ``gpu``); docs.nvidia.com/deploy/nvml-api has the meaning of each
value.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_mlms.errors import Unavailable

__all__ = ["GpuMonitor", "GpuReading", "gpu_faults", "gpu_notes", "open_gpu"]

_CLOCK_CHANGE = (
    0.05  # of the SM clock between readings under load; boost steps are of 15 MHz, about 1 %
)

_THROTTLED = {
    "nvmlClocksThrottleReasonHwSlowdown": "the hardware slowed down",
    "nvmlClocksThrottleReasonHwThermalSlowdown": "it was too hot (hardware)",
    "nvmlClocksThrottleReasonSwThermalSlowdown": "it was too hot (driver)",
    "nvmlClocksThrottleReasonHwPowerBrakeSlowdown": "the power supply braked it",
}
_CAPPED = {"nvmlClocksThrottleReasonSwPowerCap": "it was at its power limit"}


@dataclass(frozen=True)
class GpuReading:
    """One look: clocks in MHz, power in W, temperature in degrees Celsius, reasons in words,
    processes by pid.

    ``loaded``: one of our agents had just used it, so its clocks are those of work; None is what
    the driver won't tell.
    """

    loaded: bool
    sm_clock: int | None
    memory_clock: int | None
    power: float | None
    power_limit: float | None
    temperature: int | None
    throttled: tuple[str, ...]
    capped: tuple[str, ...]
    processes: tuple[int, ...] | None


class GpuMonitor:
    """A GPU that can be looked at."""

    def __init__(self, nvml: Any, index: int) -> None:
        self._nvml, self._handle = nvml, _handle(nvml, index)

    def read(self, loaded: bool) -> GpuReading:
        """Look at it now."""
        nvml, handle = self._nvml, self._handle
        power = self._ask(nvml.nvmlDeviceGetPowerUsage, handle)
        limit = self._ask(nvml.nvmlDeviceGetEnforcedPowerLimit, handle)
        reasons = self._ask(nvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle) or 0
        processes = self._ask(nvml.nvmlDeviceGetComputeRunningProcesses, handle)
        return GpuReading(
            loaded=loaded,
            sm_clock=self._ask(nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_SM),
            memory_clock=self._ask(nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_MEM),
            power=None if power is None else power / 1000,
            power_limit=None if limit is None else limit / 1000,
            temperature=self._ask(nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU),
            throttled=self._in_words(reasons, _THROTTLED),
            capped=self._in_words(reasons, _CAPPED),
            processes=None
            if processes is None
            else tuple(sorted(process.pid for process in processes)),
        )

    def _in_words(self, reasons: int, words: dict[str, str]) -> tuple[str, ...]:
        return tuple(word for name, word in words.items() if reasons & getattr(self._nvml, name))

    def _ask(self, function: Any, *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except self._nvml.NVMLError:  # not supported on this model, or not allowed
            return None


@contextlib.contextmanager
def open_gpu(device: str) -> Iterator[GpuMonitor]:
    """Give the GPU of a device such as cuda:1; raises Unavailable where the driver can't be asked.

    NVML counts all GPUs by their place on the bus, CUDA those of CUDA_VISIBLE_DEVICES, which is
    followed; unlike GPUs in one host also want CUDA_DEVICE_ORDER=PCI_BUS_ID.
    """
    try:
        import pynvml
    except ImportError:
        raise Unavailable(
            "a gate on a GPU reads its clocks by nvidia-ml-py; pip install 'pytest-mlms[gpu]'"
        ) from None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise Unavailable(
            f"device {device}: the NVIDIA driver can't be asked for its state: {error}"
        ) from None
    try:
        yield GpuMonitor(pynvml, int(device.partition(":")[2] or 0))
    except pynvml.NVMLError as error:
        raise Unavailable(f"device {device}: {error}") from None
    finally:
        pynvml.nvmlShutdown()


def _handle(nvml: Any, index: int) -> Any:
    visible = [
        name.strip()
        for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
        if name.strip()
    ]
    name = visible[index] if index < len(visible) else str(index)
    if name.isdecimal():
        return nvml.nvmlDeviceGetHandleByIndex(int(name))
    return nvml.nvmlDeviceGetHandleByUUID(name)


def gpu_faults(readings: Sequence[GpuReading], own: Collection[int]) -> list[str]:
    """Say why what was measured between these readings can't be trusted; an empty list: it can.

    ``own`` are the pids of our agents. In a container the driver tells others' numbers for them:
    then two more processes than before the first agent are taken for ours.
    """
    faults = [
        f"throttled: {', '.join(reasons)}"
        for reasons in sorted({one.throttled for one in readings})
        if reasons
    ]
    foreign = _foreign(readings, own)
    if foreign:
        faults.append(f"other processes were on it: {', '.join(map(str, foreign))}")
    clocks = [one.sm_clock for one in readings if one.loaded and one.sm_clock]
    if clocks and max(clocks) > (1 + _CLOCK_CHANGE) * min(clocks):
        faults.append(f"its clock changed from {max(clocks)} to {min(clocks)} MHz")
    limits = {one.power_limit for one in readings} - {None}
    if len(limits) > 1:
        faults.append(
            f"its power limit was set anew: {' and '.join(f'{limit:g} W' for limit in sorted(limits, key=str))}"
        )
    return faults


def gpu_notes(readings: Sequence[GpuReading]) -> list[str]:
    """Say what a person should know of the GPU while it worked.

    Clock, power and temperature, from least to most.
    """
    busy = [one for one in readings if one.loaded]
    parts = [
        _range([one.sm_clock for one in busy], "MHz"),
        _range([one.power for one in busy], "W"),
        _range([one.temperature for one in busy], "°C"),
    ]
    told = [f"GPU {', '.join(part for part in parts if part)}"] if any(parts) else []
    return told + sorted({reason for one in busy for reason in one.capped})


def _range(values: Sequence[float | None], unit: str) -> str:
    known = [value for value in values if value is not None]
    ends = [f"{end:.0f}" for end in (min(known), max(known))] if known else []
    return f"{' to '.join(dict.fromkeys(ends))} {unit}" if ends else ""


def _foreign(readings: Sequence[GpuReading], own: Collection[int]) -> list[int]:
    """Return the pids on the GPU that aren't our agents'."""
    seen = [set(one.processes or ()) for one in readings]
    before = set().union(
        *(pids for pids, one in zip(seen, readings, strict=True) if not one.loaded)
    ) - set(own)
    later = [pids - before for pids, one in zip(seen, readings, strict=True) if one.loaded]
    if any(pids & set(own) for pids in later):
        return sorted(before | set().union(*later) - set(own))
    return sorted(before.union(*(pids for pids in later if len(pids) > 2)))
