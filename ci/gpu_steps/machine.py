"""The machine as the system, the driver and this project tell of it; nothing is held to a bound."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from measured_commit import measured_commit

from gpu_steps.facts import Facts
from pytest_mlms.provide.host.machine import machine_state

__all__ = ["describe", "shell"]

ROOT = Path(__file__).resolve().parents[2]
_PACKAGES = "torch|jax|cupti|nvidia|cuda|numpy|pytest|pydantic|onnx|triton|cupy|tensor"
_COMMANDS = {
    "system": "uname -a",
    "smi": "nvidia-smi",
    "state": "nvidia-smi -q -d CLOCK,POWER,TEMPERATURE,PERFORMANCE,MEMORY",
    "modes": "nvidia-smi --query-gpu=mig.mode.current,persistence_mode,compute_mode --format=csv",
    "profiling": "grep -i profil /proc/driver/nvidia/params",
    "tools": "for name in gcc nvcc ncu podman docker; do command -v $name; done",
    "libcupti": "ldconfig -p | grep -i cupti",
    "packages": f"{sys.executable} -m pip list | grep -iE '{_PACKAGES}'",
    "limits": "cat /sys/fs/cgroup/cpu.max /sys/fs/cgroup/pids.max",
}


def describe(facts: Facts, device: str) -> None:
    """Tell the card, the commit, and what NVML answers, call by call."""
    state: dict[str, Any] = machine_state()
    first: dict[str, Any] = next(iter(state.get("gpus") or ()), {})
    card, driver = first.get("name", "no GPU"), first.get("driver", "none")
    facts.tell(card=card, driver=driver, commit=_commit(), cores=sorted(os.sched_getaffinity(0)))
    facts.tell(machine=state.get("gpus"), unavailable=state.get("unavailable"))
    if device != "cpu":
        _ask_driver(facts)  # first, as a command may take 15 s
    for name, command in _COMMANDS.items():
        facts.tell(**{name: shell(command)})


def shell(command: str, seconds: float = 15) -> str:
    """Return the end of what a command of the shell prints, or why it printed nothing."""
    try:
        done = subprocess.run(
            ["sh", "-c", command], capture_output=True, text=True, timeout=seconds, check=False
        )
    except subprocess.SubprocessError as error:
        return f"{type(error).__name__}: {error}"
    return (done.stdout + done.stderr).strip()[-3000:]


def _commit() -> str:
    """Return the measured commit; a copy of the checkout without git has it beside the wheels."""
    carried = ROOT / ".lease" / "commit"
    with contextlib.suppress(OSError):  # there is no git
        found = measured_commit()
        if found != "unknown":
            return found
    return carried.read_text().strip() if carried.exists() else "unknown"


def _ask_driver(facts: Facts) -> None:
    import pynvml as nvml
    from mlms_predictors._run.gpus import instant_power

    nvml.nvmlInit()
    handle = nvml.nvmlDeviceGetHandleByIndex(0)

    def braked(policy: int) -> Any:
        return nvml.nvmlDeviceGetViolationStatus(handle, policy).violationTime

    asked: dict[str, Callable[[], Any]] = {
        "uuid": lambda: nvml.nvmlDeviceGetUUID(handle),
        "power": lambda: nvml.nvmlDeviceGetPowerUsage(handle),
        "instant power": lambda: instant_power(nvml, handle),
        "energy": lambda: nvml.nvmlDeviceGetTotalEnergyConsumption(handle),
        "power limit": lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle),
        "throttle reasons": lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle),
        "event reasons": lambda: nvml.nvmlDeviceGetCurrentClocksEventReasons(handle),
        "SM clock": lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
        "highest SM clock": lambda: nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM),
        "set SM clock": lambda: nvml.nvmlDeviceGetApplicationsClock(handle, nvml.NVML_CLOCK_SM),
        "temperature": lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
        "utilization": lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu,
        "memory": lambda: nvml.nvmlDeviceGetMemoryInfo(handle).used,
        "memory, version 2": lambda: nvml.nvmlDeviceGetMemoryInfo(handle, nvml.nvmlMemory_v2).used,
        "processes": lambda: len(nvml.nvmlDeviceGetComputeRunningProcesses(handle)),
        "GPM": lambda: nvml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice,
        "braked by power": lambda: braked(nvml.NVML_PERF_POLICY_POWER),
        "braked by heat": lambda: braked(nvml.NVML_PERF_POLICY_THERMAL),
        "ECC": lambda: nvml.nvmlDeviceGetEccMode(handle),
    }
    for name, ask in asked.items():
        try:
            facts.tell(nvml=name, answer=ask())
        except Exception as error:  # the next call may be answered
            facts.tell(nvml=name, refused=f"{type(error).__name__}: {error}")
