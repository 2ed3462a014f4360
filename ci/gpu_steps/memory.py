"""Memory of the device beside the framework's own counter, and what a stopped neighbour costs."""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Any

from mlms_predictors._run.device_memory import NVML

from gpu_steps.facts import Facts
from gpu_steps.models import batch, opened, turn
from gpu_steps.torch_work import Work, event_us, products, warmed

__all__ = ["counters", "stopped_neighbour"]

MODEL = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.zeros(1))

    def forward(self, x):  # takes a MiB for each row
        taken = torch.empty(x.shape[0] << 20, dtype=torch.uint8, device=x.device)
        return self.w + taken[0]
"""
LITTLE = 1 << 1  # MiB, which PyTorch keeps beside what it takes then
MUCH = 1 << 12
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
    """Hold what a process holds more for an allocation, by NVML, against PyTorch's counter."""
    with opened(MODEL, device) as predictor:
        found = []
        for size in (LITTLE, MUCH):
            told = turn(predictor, batch(size, 1), 3).device_memory
            facts.tell(mebibytes=size, counters=told.counters if told else told)
            found.append(told.counters if told else {})
        facts.tell(usage=predictor.usage()._asdict())
    compare(facts, *found)


def compare(facts: Facts, little: Mapping[str, int], much: Mapping[str, int]) -> None:
    """Hold the growth of each counter against that of the first, and this against the truth."""
    names = [name for name in little if name in much]
    grown = {name: much[name] - little[name] for name in names}
    if not names:
        facts.hold("memory of the device", "no counter tells it", f"≤ {MOST_MEMORY:.0%}", False)
        return
    first, *others = names
    if NVML not in names:
        facts.figure(f"{NVML} beside {first}", "the driver doesn't tell it of a process")
    asked = (MUCH - LITTLE) << 20
    facts.hold_share(f"{first} beside what was allocated", grown[first] / asked - 1, MOST_MEMORY)
    for name in others:
        share = grown[name] / grown[first] - 1
        facts.hold_share(f"{name} beside {first}", share, MOST_MEMORY)


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
