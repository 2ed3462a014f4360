"""The machine's state, as it goes into every result: what can be read, and why the rest can't."""

from __future__ import annotations

import contextlib
import os
import platform
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import psutil

__all__ = ["CpuTimes", "machine_state"]

_CPU = Path("/sys/devices/system/cpu")


class _Unreadable(Exception):
    """Why a fact can't be had here."""


def machine_state() -> dict[str, Any]:
    """Return plain values by name; ``unavailable`` maps the name of each fact that can't be read to
    the reason.

    Frequencies are in MHz, memory in bytes, temperatures in degrees Celsius, power in watts.
    """
    state, unavailable = dict(_fixed()), dict(_fixed()["unavailable"])
    for name, read in _CHANGING.items():
        _put(state, unavailable, name, read)
    state["unavailable"] = unavailable
    return state


class CpuTimes:
    """What the host did over a stretch of time.

    Shares of all cores' time, from /proc/stat by psutil.
    """

    def __init__(self) -> None:
        self._before = psutil.cpu_times()

    def shares(self) -> dict[str, float | None]:
        """Return the busy and the steal share since the start, 0 to 1.

        Steal is None where it isn't counted.
        """
        before, now = self._before._asdict(), psutil.cpu_times()._asdict()
        spent = {
            name: now[name] - before[name] for name in now if name not in ("guest", "guest_nice")
        }
        total = sum(spent.values())
        if total <= 0:
            return {"busy": None, "steal": None}
        idle = spent.get("idle", 0.0) + spent.get("iowait", 0.0)
        return {
            "busy": 1 - idle / total,
            "steal": spent["steal"] / total if "steal" in spent else None,
        }


def _put(
    state: dict[str, Any], unavailable: dict[str, str], name: str, read: Callable[[], Any]
) -> None:
    try:
        state[name] = read()
    except _Unreadable as why:
        unavailable[name] = str(why)
    except OSError as error:
        unavailable[name] = f"{error.strerror}: {error.filename}"


@lru_cache(maxsize=1)
def _fixed() -> dict[str, Any]:
    state: dict[str, Any] = {}
    unavailable: dict[str, str] = {}
    for name, read in _FIXED.items():
        _put(state, unavailable, name, read)
    return {**state, "unavailable": unavailable}


def _cpu_model() -> dict[str, Any]:
    import archspec.cpu

    host = archspec.cpu.host()
    brand = archspec.cpu.brand_string()
    return {
        "model": brand or platform.processor() or host.name,
        "microarchitecture": host.name,
        "vendor": host.vendor,
    }


def _virtual() -> bool:
    """Whether this is a virtual machine: Linux shows the CPUID bit as a flag."""
    return " hypervisor" in Path("/proc/cpuinfo").read_text()


def _cgroup_limits() -> dict[str, Any]:
    """The tightest limits from our control group upwards, of version 2 (cgroup-v2.rst) or version
    1.
    """
    cpus: list[float] = []
    memory: list[int] = []
    for folder in _cgroup_folders():
        with contextlib.suppress(OSError, ValueError):
            quota, period = (folder / "cpu.max").read_text().split()
            cpus.append(float(quota) / float(period))
        with contextlib.suppress(OSError, ValueError):
            cpus.append(
                _positive(folder / "cpu.cfs_quota_us") / _positive(folder / "cpu.cfs_period_us")
            )
        for name in ("memory.max", "memory.limit_in_bytes"):
            with contextlib.suppress(OSError, ValueError):
                memory.append(_positive(folder / name))
    huge = psutil.virtual_memory().total
    return {
        "cpus": min(cpus, default=None),
        "memory": min((size for size in memory if size < huge), default=None),
    }


def _positive(path: Path) -> int:
    value = int(path.read_text())
    if value <= 0:
        raise ValueError
    return value


def _cgroup_folders() -> list[Path]:
    folders = []
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        for root in {Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup") / controllers}:
            below = root / path.lstrip("/")
            folders += [folder for folder in (below, *below.parents) if folder.is_relative_to(root)]
    return folders


def _affinity() -> list[int]:
    process = psutil.Process()
    if not hasattr(process, "cpu_affinity"):
        raise _Unreadable("this system doesn't tell a process its cores")
    return sorted(process.cpu_affinity())


def _governor() -> str:
    found = {path.read_text().strip() for path in _CPU.glob("cpu*/cpufreq/scaling_governor")}
    if not found:
        raise _Unreadable("no cpufreq in /sys, as on most virtual machines")
    return ", ".join(sorted(found))


def _boost() -> bool:
    for name, on in (("intel_pstate/no_turbo", "0"), ("cpufreq/boost", "1")):
        with contextlib.suppress(OSError):
            return (_CPU / name).read_text().strip() == on
    raise _Unreadable("neither intel_pstate/no_turbo nor cpufreq/boost in /sys")


def _frequency() -> float:
    found = psutil.cpu_freq()
    if not found:
        raise _Unreadable("the kernel doesn't tell the frequency")
    return float(found.current)


def _load() -> list[float]:
    return [round(value, 2) for value in psutil.getloadavg()]


def _temperature() -> float:
    sensors = psutil.sensors_temperatures() if hasattr(psutil, "sensors_temperatures") else {}
    found = [reading.current for readings in sensors.values() for reading in readings]
    if not found:
        raise _Unreadable("no sensor in /sys/class/hwmon or thermal")
    return float(max(found))


def _gpus() -> list[dict[str, Any]]:
    """Each GPU by NVML: clocks, power, temperature, throttle reasons, and whose processes are on
    it.
    """
    try:
        import pynvml
    except ImportError:
        raise _Unreadable("nvidia-ml-py isn't installed; pip install 'pytest-mlms[gpu]'") from None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise _Unreadable(f"NVML: {error}") from None
    try:
        return [
            _gpu(pynvml, pynvml.nvmlDeviceGetHandleByIndex(i))
            for i in range(pynvml.nvmlDeviceGetCount())
        ]
    except pynvml.NVMLError as error:
        raise _Unreadable(f"NVML: {error}") from None
    finally:
        pynvml.nvmlShutdown()


def _gpu(nvml: Any, handle: Any) -> dict[str, Any]:
    readings: dict[str, Callable[[], Any]] = {
        "name": lambda: nvml.nvmlDeviceGetName(handle),
        "uuid": lambda: nvml.nvmlDeviceGetUUID(handle),
        "driver": nvml.nvmlSystemGetDriverVersion,
        "memory": lambda: nvml.nvmlDeviceGetMemoryInfo(handle).total,
        "sm_clock": lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
        "memory_clock": lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM),
        "power": lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000,
        "temperature": lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
        "throttle_reasons": lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle),
        "processes": lambda: [
            process.pid for process in nvml.nvmlDeviceGetComputeRunningProcesses(handle)
        ],
    }
    state: dict[str, Any] = {}
    unavailable: dict[str, str] = {}
    for name, read in readings.items():
        try:
            state[name] = read()
        except nvml.NVMLError as error:
            unavailable[name] = str(error)
    return {**state, "unavailable": unavailable}


_FIXED: dict[str, Callable[[], Any]] = {
    "host": platform.node,
    "system": lambda: f"{platform.system()} {platform.release()}",
    "kernel": platform.version,
    "architecture": platform.machine,
    "cpu": _cpu_model,
    "cores": lambda: {"physical": psutil.cpu_count(logical=False), "logical": psutil.cpu_count()},
    "memory": lambda: psutil.virtual_memory().total,
    "virtual_machine": _virtual,
    "cgroup_limits": _cgroup_limits,
}

_CHANGING: dict[str, Callable[[], Any]] = {
    "affinity": _affinity,
    "governor": _governor,
    "boost": _boost,
    "frequency": _frequency,
    "load_average": _load,
    "memory_available": lambda: psutil.virtual_memory().available,
    "temperature": _temperature,
    "thread_settings": lambda: {
        name: os.environ[name] for name in sorted(os.environ) if name.endswith("_NUM_THREADS")
    },
    "gpus": _gpus,
}
