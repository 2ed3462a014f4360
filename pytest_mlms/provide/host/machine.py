"""The machine's state, which goes into every result: what can be read, and why the rest can't."""

from __future__ import annotations

import contextlib
import os
import platform
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import psutil
from mlms_predictors._run.gpus import (
    import_pynvml,
    instant_power,
    list_gpus,
    visible_gpus,
    whole_gpu,
)

from pytest_mlms.core.extras import install
from pytest_mlms.core.memory import cgroup_folders, cpu_limits, memory_limits

_DEVICES = Path("/sys/devices")


def cores_beside(cores: Collection[int], allowed: Collection[int] = ()) -> dict[int, int]:
    """Return another core for each of these; none where there are too few.

    This process may use them, and they are ``allowed`` if any are. They have the same memory, since
    what a process has taken stays where it is (numa(7)), and are of the same kind. Threads of one
    physical core are again threads of one, as frameworks count these. Others come first. There are
    none where a control group's limit of CPUs would slow both sides down together.
    """
    if not cores or not hasattr(os, "sched_getaffinity") or not _may_use(2 * len(cores)):
        return {}
    near = os.sched_getaffinity(0).intersection(*(_node_of(core) for core in cores))
    if allowed:
        near &= set(allowed)
    taken = set().union(*(_siblings_of(core) for core in cores))
    free = near.difference(cores)
    ordered = sorted(free, key=lambda core: (core in taken, core < min(cores), core))
    free_groups = _by_physical_core(ordered)
    places: dict[int, int] = {}
    for group in sorted(_by_physical_core(sorted(cores)), key=len, reverse=True):
        for other in free_groups:
            if len(other) >= len(group) and _kind_of(other[0]) == _kind_of(group[0]):
                places.update(zip(group, other, strict=False))
                free_groups.remove(other)
                break
        else:
            return {}
    return places


def _may_use(count: int) -> bool:
    """Return whether control groups allow so many CPUs at once."""
    with contextlib.suppress(OSError):  # a system without control groups
        return all(count <= each for folder in cgroup_folders() for each in cpu_limits(folder))
    return True


def _by_physical_core(cores: Iterable[int]) -> list[list[int]]:
    groups: dict[int, list[int]] = {}
    for core in cores:
        groups.setdefault(min(_siblings_of(core)), []).append(core)
    return list(groups.values())


def _siblings_of(core: int) -> set[int]:
    """Return the threads of a core's physical core; only itself where the kernel doesn't tell."""
    return {core} | _listed(f"system/cpu/cpu{core}/topology/thread_siblings_list")


def _node_of(core: int) -> set[int]:
    """Return the cores of a core's memory node; only itself where the kernel doesn't tell.

    A kernel that is built without nodes has all its cores in one.
    """
    of_node = _listed(f"system/cpu/cpu{core}/node*/cpulist")
    return {core} | (of_node or _listed("system/cpu/present"))


def _kind_of(core: int) -> tuple[bool, set[int]]:
    """Return what tells slow cores from fast ones: of Intel, and of ARM."""
    return core in _listed("cpu_atom/cpus"), _listed(f"system/cpu/cpu{core}/cpu_capacity")


def _listed(pattern: str) -> set[int]:
    """Return the numbers that the kernel lists in files; none where there is no file."""
    return {core for path in _DEVICES.glob(pattern) for core in listed_numbers(path.read_text())}


def listed_numbers(text: str) -> list[int]:
    """Return the numbers of a list of the kernel, such as "0-3,8"."""
    found: list[int] = []
    for first, last in re.findall(r"(\d+)(?:-(\d+))?", text):
        found += range(int(first), int(last or first) + 1)
    return found


Facts = dict[str, Any]
"""Plain values by name; ``unavailable`` maps the names of the others to the reasons."""

_CPU = Path("/sys/devices/system/cpu")
_NVIDIA_DRIVER = Path("/proc/driver/nvidia/version")


class _Unreadable(Exception):
    """A fact that can't be read here; the text says why."""


def machine_state() -> Facts:
    """Return the state of this machine.

    Frequencies are in MHz, memory in bytes, temperatures in degrees Celsius, power in watts.
    ``unavailable`` maps the name of each fact that can't be read to the reason.
    """
    fixed = _fixed_facts()
    changing = _read_all(_CHANGING)
    unavailable = {**fixed["unavailable"], **changing["unavailable"]}
    return {**fixed, **changing, "unavailable": unavailable}


class CpuTimes:
    """The use of all cores over a stretch of time that begins now, from /proc/stat by psutil."""

    def __init__(self) -> None:
        self._before = psutil.cpu_times()._asdict()

    def shares(self) -> dict[str, float | None]:
        """Return the busy and the stolen share of the cores' time, each from 0 to 1.

        Both are None before any time has passed; the stolen share is None where the system doesn't
        count it.
        """
        spent = self._spent()
        total = sum(spent.values())
        if total <= 0:
            return {"busy": None, "steal": None}
        idle = spent.get("idle", 0.0) + spent.get("iowait", 0.0)
        steal = None
        if "steal" in spent:
            steal = spent["steal"] / total
        return {"busy": 1 - idle / total, "steal": steal}

    def _spent(self) -> dict[str, float]:
        """Return the seconds of each kind; user and nice include the time of guests."""
        now = psutil.cpu_times()._asdict()
        spent = {}
        for name, seconds in now.items():
            if name not in ("guest", "guest_nice"):
                spent[name] = seconds - self._before[name]
        return spent


@lru_cache(maxsize=1)
def _fixed_facts() -> Facts:
    return _read_all(_FIXED)


def _read_all(readers: Mapping[str, Callable[[], Any]]) -> Facts:
    facts: Facts = {}
    unavailable = {}
    for name, read in readers.items():
        try:
            facts[name] = read()
        except _Unreadable as error:
            unavailable[name] = str(error)
        except OSError as error:
            unavailable[name] = f"{error.strerror}: {error.filename}"
        except Exception as error:  # of psutil, archspec or NVML on a host that they don't expect
            unavailable[name] = f"{type(error).__name__}: {error}"
    facts["unavailable"] = unavailable
    return facts


def _system() -> str:
    return f"{platform.system()} {platform.release()}"


def _cpu_model() -> Facts:
    import archspec.cpu

    host = archspec.cpu.host()
    brand = archspec.cpu.brand_string()
    return {
        "model": brand or platform.processor() or host.name,
        "microarchitecture": host.name,
        "vendor": host.vendor,
    }


def _core_counts() -> Facts:
    physical = psutil.cpu_count(logical=False)
    return {"physical": physical, "logical": psutil.cpu_count()}


def _core_kinds() -> dict[str, list[int]]:
    """Return the cores of each kind, of a machine that has several: fast and slow ones."""
    intel = {kind: _CPU.parents[1] / kind / "cpus" for kind in ("cpu_core", "cpu_atom")}
    kinds = {
        kind: listed_numbers(path.read_text()) for kind, path in intel.items() if path.exists()
    }
    for path in _CPU.glob("cpu[0-9]*/cpu_capacity"):
        core = int(path.parent.name.removeprefix("cpu"))
        kinds.setdefault(f"capacity {path.read_text().strip()}", []).append(core)
    return {kind: sorted(cores) for kind, cores in kinds.items()} if len(kinds) > 1 else {}


def _memory() -> int:
    return int(psutil.virtual_memory().total)


def _is_virtual_machine() -> bool:
    """Return whether this is a virtual machine: Linux shows the CPUID bit as a flag."""
    return " hypervisor" in Path("/proc/cpuinfo").read_text()


def _cgroup_limits() -> Facts:
    """Return the tightest limits of our control group and those above it.

    They are those of version 2 (cgroup-v2.rst) or version 1. A limit of CPUs is None where there
    is none, one of memory also where it is not below the machine's.
    """
    cpus: list[float] = []
    memory: list[int] = []
    for folder in cgroup_folders():
        cpus += cpu_limits(folder)
        memory += [limit for limit in memory_limits(folder) if limit < _memory()]
    return {"cpus": min(cpus, default=None), "memory": min(memory, default=None)}


def _affinity() -> list[int]:
    process = psutil.Process()
    if not hasattr(process, "cpu_affinity"):
        raise _Unreadable("this system doesn't tell a process its cores")
    return sorted(process.cpu_affinity())


def _governor() -> str:
    paths = _CPU.glob("cpu*/cpufreq/scaling_governor")
    found = {path.read_text().strip() for path in paths}
    if not found:
        raise _Unreadable("no cpufreq in /sys, as on most virtual machines")
    return ", ".join(sorted(found))


def _boost() -> bool:
    for name, enabled in (("intel_pstate/no_turbo", "0"), ("cpufreq/boost", "1")):
        with contextlib.suppress(OSError):
            text = (_CPU / name).read_text()
            return text.strip() == enabled
    raise _Unreadable("neither intel_pstate/no_turbo nor cpufreq/boost in /sys")


def _frequency() -> float:
    found = psutil.cpu_freq()
    if not found:
        raise _Unreadable("the kernel doesn't tell the frequency")
    return float(found.current)


def _load_average() -> list[float]:
    return [round(value, 2) for value in psutil.getloadavg()]


def _available_memory() -> int:
    return int(psutil.virtual_memory().available)


def _temperature() -> float:
    """Return the highest temperature that a sensor has."""
    found = []
    if hasattr(psutil, "sensors_temperatures"):
        for readings in psutil.sensors_temperatures().values():
            found += [reading.current for reading in readings]
    if not found:
        raise _Unreadable("no sensor in /sys/class/hwmon or thermal")
    return float(max(found))


def _thread_settings() -> dict[str, str]:
    settings = {}
    for name in sorted(os.environ):
        if name.endswith("_NUM_THREADS"):
            settings[name] = os.environ[name]
    return settings


def _gpu_driver() -> str:
    """Return the version of NVIDIA's driver, which Linux shows also where there is no NVML."""
    text = _NVIDIA_DRIVER.read_text()
    found = re.search(r"NVRM version:.*?\s(\d+(?:\.\d+)+)\s", text)
    if found is None:
        raise _Unreadable(f"{_NVIDIA_DRIVER} has no version")
    return found[1]


def _gpus() -> list[Facts]:
    """Return the state of each GPU by NVML; of a GPU in MIG mode, of each slice.

    It has clocks, power, temperature, throttle reasons, and the PIDs of the processes on it.
    """
    try:
        pynvml = import_pynvml()
    except ImportError:
        missing = "there is no nvidia-ml-py from version 12 on"
        raise _Unreadable(f"{missing}; {install('gpu')}") from None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise _Unreadable(f"NVML: {error}") from None
    try:
        devices = visible_gpus(list_gpus(), None)
        return [_gpu(pynvml, pynvml.nvmlDeviceGetHandleByUUID(gpu.uuid)) for gpu in devices]
    except pynvml.NVMLError as error:
        raise _Unreadable(f"NVML: {error}") from None
    finally:
        pynvml.nvmlShutdown()


def _gpu(nvml: Any, handle: Any) -> Facts:
    whole = whole_gpu(nvml, handle)
    readers: dict[str, Callable[[], Any]] = {
        "name": lambda: nvml.nvmlDeviceGetName(handle),
        "uuid": lambda: nvml.nvmlDeviceGetUUID(handle),
        "driver": nvml.nvmlSystemGetDriverVersion,
        "memory": lambda: nvml.nvmlDeviceGetMemoryInfo(handle).total,
        "sm_clock": lambda: nvml.nvmlDeviceGetClockInfo(whole, nvml.NVML_CLOCK_SM),
        "memory_clock": lambda: nvml.nvmlDeviceGetClockInfo(whole, nvml.NVML_CLOCK_MEM),
        "power": lambda: nvml.nvmlDeviceGetPowerUsage(whole) / 1000,
        "instant_power": lambda: instant_power(nvml, whole),
        "temperature": lambda: nvml.nvmlDeviceGetTemperature(whole, nvml.NVML_TEMPERATURE_GPU),
        "throttle_reasons": lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(whole),
        "processes": lambda: [
            process.pid for process in nvml.nvmlDeviceGetComputeRunningProcesses(handle)
        ],
    }
    state: Facts = {}
    unavailable = {}
    for name, read in readers.items():
        try:
            state[name] = read()
        except nvml.NVMLError as error:
            unavailable[name] = str(error)
    state["unavailable"] = unavailable
    return state


_FIXED: dict[str, Callable[[], Any]] = {
    "host": platform.node,
    "system": _system,
    "kernel": platform.version,
    "architecture": platform.machine,
    "cpu": _cpu_model,
    "cores": _core_counts,
    "core_kinds": _core_kinds,
    "memory": _memory,
    "virtual_machine": _is_virtual_machine,
    "cgroup_limits": _cgroup_limits,
    "gpu_driver": _gpu_driver,
}
"""Facts that stay the same while a process runs."""

_CHANGING: dict[str, Callable[[], Any]] = {
    "affinity": _affinity,
    "governor": _governor,
    "boost": _boost,
    "frequency": _frequency,
    "load_average": _load_average,
    "memory_available": _available_memory,
    "temperature": _temperature,
    "thread_settings": _thread_settings,
    "gpus": _gpus,
}
