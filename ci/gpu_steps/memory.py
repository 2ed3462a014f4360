"""Memory of the device beside the framework's own counter, and what a stopped neighbour costs."""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import time
from typing import Any

from gpu_steps.facts import Facts
from gpu_steps.torch_work import Work, event_us, products, warmed

__all__ = ["counters", "stopped_neighbour"]

MIB = 1 << 20
SIZE = 4096 * MIB
MOST_MEMORY = 0.02
MOST_BESIDE = 0.005
TIMES = 4
_NEIGHBOUR = """
import sys, time, torch
x = torch.randn(4096, 4096, device="cuda")
(x @ x).sum().item()
print("ready", flush=True)
while sys.argv[1] == "busy":
    x @ x
    torch.cuda.synchronize()
time.sleep(600)
"""


def counters(facts: Facts, device: str) -> None:
    """Hold what the device has more of after an allocation against PyTorch's own counter."""
    import torch
    from mlms_predictors._run.probes.nvml import device_memory

    torch.ones(1, device=device)
    context = read_memory(facts, device, "context")
    used = device_memory(device)
    held = torch.ones(SIZE // 4, device=device)
    torch.cuda.synchronize()
    full = read_memory(facts, device, "allocated")
    grown = (device_memory(device) or 0) - (used or 0)
    counted = full["reserved"] - context["reserved"]
    facts.hold_share("memory by NVML beside PyTorch's", grown / counted - 1, MOST_MEMORY)
    own = full["own"] - context["own"]
    if full["own"]:
        facts.hold_share("that of the process by NVML", own / counted - 1, MOST_MEMORY)
    else:
        facts.figure("that of the process by NVML", "not told")
    del held
    torch.cuda.empty_cache()
    read_memory(facts, device, "freed")


def read_memory(facts: Facts, device: str, moment: str) -> dict[str, int]:
    """Return and tell the bytes by PyTorch, and by NVML for the process and the device."""
    import torch
    from mlms_predictors._run.probes.nvml import open_nvml

    nvml, handle = open_nvml(device)
    processes = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
    own = [process for process in processes if process.pid == os.getpid()] or processes[:1]
    found = {
        "allocated": torch.cuda.max_memory_allocated(),
        "reserved": torch.cuda.memory_reserved(),
        "own": int(sum(process.usedGpuMemory or 0 for process in own)),
        "device": int(nvml.nvmlDeviceGetMemoryInfo(handle).used),
    }
    pids = [process.pid for process in processes]
    nvml.nvmlShutdown()
    facts.tell(moment=moment, pid=os.getpid(), pids=pids, **found)
    return found


def stopped_neighbour(facts: Facts, device: str) -> None:
    """Hold the time beside a stopped process with a context against that without one."""
    work = warmed(products(device))
    for mode in ("idle", "busy"):
        alone = [event_us(work) for _ in range(TIMES)]
        with _neighbour(mode) as neighbour:
            running = event_us(work)
            stopped = [_beside(neighbour, work) for _ in range(2 * TIMES)]
            neighbour.kill()
        alone += [event_us(work) for _ in range(TIMES)]
        facts.tell(neighbour=mode, running=running, stopped=stopped, alone=alone)
        usual = statistics.median(alone)
        cost = statistics.median(stopped) / usual - 1
        facts.hold_share(f"beside a stopped {mode} neighbour", cost, MOST_BESIDE)
        facts.figure(f"beside a running {mode} neighbour", f"{running / usual - 1:+.1%}")


def _neighbour(mode: str) -> subprocess.Popen[str]:
    """Return a process with a context on the GPU, which is ready."""
    command = [sys.executable, "-c", _NEIGHBOUR, mode]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    stdout: Any = process.stdout
    if stdout.readline() != "ready\n":
        raise RuntimeError(f"the neighbour ended with status {process.wait()}")
    time.sleep(0.5)
    return process


def _beside(neighbour: subprocess.Popen[str], work: Work) -> float:
    """Return the time of a call while a neighbour is stopped, as a side of an upgrade is."""
    os.kill(neighbour.pid, signal.SIGSTOP)
    time.sleep(0.2)
    try:
        return event_us(work)
    finally:
        os.kill(neighbour.pid, signal.SIGCONT)
