"""Monitoring of a GPU while two stacks take turns on it, and the checks of what was read.

The readings are those of NVML, by nvidia-ml-py (extra ``gpu``); docs.nvidia.com/deploy/nvml-api
has the meaning of each value.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from mlms_predictors._run.gpus import instant_power, open_gpu_handle, whole_gpu

from pytest_mlms.errors import Unavailable

__all__ = ["GpuMonitor", "GpuReading", "gpu_notes", "gpu_problems", "open_gpu"]

_CLOCK_CHANGE = 0.05  # of the SM clock under load; steps of boost are of 15 MHz, about 1 %
_AGENTS = 2  # of an upgrade: one for each stack

_THROTTLED = {
    "nvmlClocksThrottleReasonHwSlowdown": "the hardware slowed down",
    "nvmlClocksThrottleReasonHwThermalSlowdown": "it was too hot (hardware)",
    "nvmlClocksThrottleReasonSwThermalSlowdown": "it was too hot (driver)",
    "nvmlClocksThrottleReasonHwPowerBrakeSlowdown": "the power supply braked it",
}
_CAPPED = {"nvmlClocksThrottleReasonSwPowerCap": "it was at its power limit"}


@dataclass(frozen=True)
class GpuReading:
    """One reading of a GPU.

    Clocks are in MHz, power in W (``instant_power`` now, ``power`` a mean over a second on most
    GPUs), temperatures in degrees Celsius; ``throttled`` and ``capped`` are reasons in words,
    ``processes`` are PIDs. ``loaded`` says that one of our agents had just used the GPU, so that
    its clocks are those of work. A value that the driver doesn't give is None.
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
    instant_power: float | None = None


class GpuMonitor:
    """Reads the state of the GPU that CUDA calls cuda:``ordinal``.

    ``nvml`` is the module pynvml, initialized. Of a slice of a GPU (MIG) all but the processes is
    that of the GPU. Raises LookupError where there is no such GPU.
    """

    def __init__(self, nvml: Any, ordinal: int) -> None:
        self._nvml = nvml
        self._device = open_gpu_handle(nvml, ordinal)
        self._whole = whole_gpu(nvml, self._device)

    def read(self, loaded: bool) -> GpuReading:
        """Read the state of the GPU now."""
        nvml = self._nvml
        reasons = self._ask(nvml.nvmlDeviceGetCurrentClocksThrottleReasons) or 0
        return GpuReading(
            loaded=loaded,
            sm_clock=self._ask(nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_SM),
            memory_clock=self._ask(nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_MEM),
            power=self._ask_watts(nvml.nvmlDeviceGetPowerUsage),
            power_limit=self._ask_watts(nvml.nvmlDeviceGetEnforcedPowerLimit),
            temperature=self._ask(nvml.nvmlDeviceGetTemperature, nvml.NVML_TEMPERATURE_GPU),
            throttled=self._in_words(reasons, _THROTTLED),
            capped=self._in_words(reasons, _CAPPED),
            processes=self._processes(),
            instant_power=self._instant_power(),
        )

    def _ask(self, function: Any, *arguments: Any) -> Any:
        """Return the driver's answer, None where it gives none."""
        try:
            return function(self._whole, *arguments)
        except self._nvml.NVMLError:  # not supported on this model, or not allowed
            return None

    def _ask_watts(self, function: Any) -> float | None:
        milliwatts = self._ask(function)
        if milliwatts is None:
            return None
        return float(milliwatts / 1000)

    def _instant_power(self) -> float | None:
        try:
            return float(instant_power(self._nvml, self._whole))
        except self._nvml.NVMLError:
            return None

    def _processes(self) -> tuple[int, ...] | None:
        try:
            processes = self._nvml.nvmlDeviceGetComputeRunningProcesses(self._device)
        except self._nvml.NVMLError:
            return None
        pids = [process.pid for process in processes]
        return tuple(sorted(pids))

    def _in_words(self, reasons: int, words: dict[str, str]) -> tuple[str, ...]:
        found = []
        for name, reason in words.items():
            if reasons & getattr(self._nvml, name):
                found.append(reason)
        return tuple(found)


@contextlib.contextmanager
def open_gpu(device: str) -> Iterator[GpuMonitor]:
    """Yield a monitor of the GPU of a device such as cuda:1.

    Raises Unavailable where nvidia-ml-py is not installed or the driver gives no answer.
    """
    try:
        import pynvml
    except ImportError:
        problem = "a gate on a GPU reads its clocks by nvidia-ml-py"
        raise Unavailable(f"{problem}; pip install 'pytest-mlms[gpu]'") from None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        problem = f"the NVIDIA driver can't be asked for its state: {error}"
        raise Unavailable(f"device {device}: {problem}") from None
    try:
        yield GpuMonitor(pynvml, _ordinal(device))
    except (pynvml.NVMLError, LookupError) as error:
        raise Unavailable(f"device {device}: {error}") from None
    finally:
        pynvml.nvmlShutdown()


def _ordinal(device: str) -> int:
    number = device.partition(":")[2]
    return int(number or 0)


def gpu_problems(readings: Sequence[GpuReading], own: Collection[int]) -> list[str]:
    """Return why what was measured between these readings can't be trusted, if anything.

    ``own`` are the PIDs of our agents. In a container the driver gives other PIDs for them: then
    two more processes than before the first agent are taken for ours.
    """
    problems = []
    for reasons in sorted({reading.throttled for reading in readings}):
        if reasons:
            problems.append(f"throttled: {', '.join(reasons)}")
    foreign = _foreign_processes(readings, own)
    if foreign:
        pids = ", ".join(map(str, foreign))
        problems.append(f"other processes were on it: {pids}")
    problems += _clock_problems(readings)
    problems += _power_limit_problems(readings)
    return problems


def _clock_problems(readings: Sequence[GpuReading]) -> list[str]:
    clocks = []
    for reading in readings:
        if reading.loaded and reading.sm_clock:
            clocks.append(reading.sm_clock)
    if not clocks:
        return []
    low = min(clocks)
    high = max(clocks)
    if high <= (1 + _CLOCK_CHANGE) * low:
        return []
    return [f"its clock changed from {high} to {low} MHz"]


def _power_limit_problems(readings: Sequence[GpuReading]) -> list[str]:
    limits = {reading.power_limit for reading in readings}
    known = [f"{limit:g} W" for limit in limits if limit is not None]
    if len(known) < 2:
        return []
    shown = " and ".join(sorted(known))
    return [f"its power limit was set anew: {shown}"]


def _foreign_processes(readings: Sequence[GpuReading], own: Collection[int]) -> list[int]:
    """Return the PIDs on the GPU that are not those of our agents."""
    ours = set(own)
    before: set[int] = set()
    for reading in readings:
        if not reading.loaded:
            before.update(reading.processes or ())
    foreign = before - ours
    later = []
    for reading in readings:
        if reading.loaded:
            later.append(set(reading.processes or ()) - foreign)
    are_pids_ours = any(pids & ours for pids in later)
    for pids in later:
        if are_pids_ours:
            foreign |= pids - ours
        elif len(pids) > _AGENTS:  # the driver gives the PIDs of another namespace
            foreign |= pids
    return sorted(foreign)


def gpu_notes(readings: Sequence[GpuReading]) -> list[str]:
    """Return what a report says of the GPU at work.

    It has the least and the greatest clock, power and temperature, and that the GPU was at its
    power limit.
    """
    busy = [reading for reading in readings if reading.loaded]
    ranges = [
        _range([reading.sm_clock for reading in busy], "MHz"),
        _range([reading.power for reading in busy], "W"),
        _range([reading.temperature for reading in busy], "°C"),
    ]
    known = [part for part in ranges if part]
    capped: set[str] = set()
    for reading in busy:
        capped.update(reading.capped)
    notes = sorted(capped)
    if known:
        notes.insert(0, f"GPU {', '.join(known)}")
    return notes


def _range(values: Sequence[float | None], unit: str) -> str:
    """Return the least and the greatest value with a unit, "" where none is known."""
    known = [value for value in values if value is not None]
    if not known:
        return ""
    low = f"{min(known):.0f}"
    high = f"{max(known):.0f}"
    if low == high:
        return f"{low} {unit}"
    return f"{low} to {high} {unit}"
