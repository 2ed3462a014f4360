"""Clocks under and after load, and energy beside the integral of power."""

from __future__ import annotations

import contextlib
import itertools
import os
import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import NamedTuple

from gpu_steps.facts import Facts
from gpu_steps.torch_work import Work, products

__all__ = ["clocks", "energy"]

MOST = 0.03
LOADS = {"float32": 6.0, "bfloat16": 6.0}  # seconds of each
PERIOD = 1.0  # seconds between readings
AFTER = (0, 0.002, 0.01, 0.05, 0.2, 0.5, 1, 2, 4)  # seconds after a load
SETTLED = 2.0  # seconds in which the driver's mean of power follows a load


class Reading(NamedTuple):
    """A moment: seconds, the counter's joules, and the watts of now and of the last second."""

    at: float
    joules: float
    now: float
    mean: float


def clocks(facts: Facts, device: str) -> None:
    """Tell how far the clock moves under a load of each kind, why, and how long it stays after."""
    from pytest_mlms.provide.host.gpu_monitor import gpu_facts, gpu_limits, gpu_problems, open_gpu

    with open_gpu(device) as monitor:
        for dtype, seconds in LOADS.items():
            readings = [monitor.read(loaded=False)]
            for part in _under_load(products(device, 8192, 20, dtype), seconds):
                monitor.glance("")
                if part > len(readings) * PERIOD:
                    readings.append(monitor.read(loaded=True))
            facts.tell(load=dtype, readings=[asdict(reading) for reading in readings])
            problems = gpu_problems(readings, {os.getpid()}, agents=1)
            facts.tell(load=dtype, problems=problems, limits=gpu_limits(readings))
            facts.figure(f"under a load of {dtype}", gpu_facts(readings))
        ended = time.monotonic()
        for seconds in AFTER:
            time.sleep(max(ended + seconds - time.monotonic(), 0))
            facts.tell(after=seconds, reading=asdict(monitor.read(loaded=False)))


def _under_load(work: Work, seconds: float) -> Iterator[float]:
    """Yield the time since the begin in seconds, just after each of some calls."""
    import torch

    began = time.monotonic()
    while time.monotonic() < began + seconds:
        work()
        torch.cuda.synchronize()
        yield time.monotonic() - began


def energy(facts: Facts, device: str) -> None:
    """Hold the counter of energy against the integral of power; tell how often it moves."""
    from mlms_predictors._run.energy import EnergyMeter

    work = products(device, 8192, 20, "bfloat16")
    with sampled(device) as readings:
        _keep_busy(work, 8)
    settled = [reading for reading in readings if reading.at > readings[0].at + SETTLED]
    compare(facts, settled)
    meter = EnergyMeter(device)
    idle = meter.idle_watts(1)
    meter.begin()
    _keep_busy(work, 2)
    joules = meter.joules()
    facts.tell(joules=joules, idle_watts=idle, period=meter.period, missing=meter.missing)
    meter.close()


def compare(facts: Facts, readings: Sequence[Reading]) -> None:
    """Hold the counter's joules against both integrals."""
    counted = readings[-1].joules - readings[0].joules
    of_now = integral(readings, [reading.now for reading in readings])
    of_mean = integral(readings, [reading.mean for reading in readings])
    facts.tell(seconds=readings[-1].at - readings[0].at, counted=counted, now=of_now, mean=of_mean)
    facts.hold_share("energy beside the integral of power", counted / of_now - 1, MOST)
    facts.figure("energy beside that of the mean power", f"{counted / of_mean - 1:+.2%}")
    facts.figure("period of the counter", f"{1e3 * period(readings):.0f} ms")


def integral(readings: Sequence[Reading], watts: Sequence[float]) -> float:
    """Return the joules of some powers by trapezoids."""
    joules = 0.0
    for number in range(1, len(readings)):
        seconds = readings[number].at - readings[number - 1].at
        joules += seconds * (watts[number] + watts[number - 1]) / 2
    return joules


def period(readings: Sequence[Reading]) -> float:
    """Return the median seconds between two changes of the counter; 0 where it has no two."""
    moved = []
    for before, now in itertools.pairwise(readings):
        if now.joules != before.joules:
            moved.append(now.at)
    gaps = [now - before for before, now in itertools.pairwise(moved)]
    return statistics.median(gaps) if gaps else 0.0


@contextlib.contextmanager
def sampled(device: str) -> Iterator[list[Reading]]:
    """Read energy and power every 5 ms in a thread; the list is filled meanwhile."""
    from mlms_predictors._run.gpus import instant_power
    from mlms_predictors._run.probes.nvml import open_nvml

    nvml, handle = open_nvml(device)
    readings: list[Reading] = []
    ended = threading.Event()

    def read() -> None:
        while not ended.wait(0.005):
            joules = nvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1e3
            mean = nvml.nvmlDeviceGetPowerUsage(handle) / 1e3
            readings.append(Reading(time.perf_counter(), joules, instant_power(nvml, handle), mean))

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    try:
        yield readings
    finally:
        ended.set()
        thread.join()
        nvml.nvmlShutdown()


def _keep_busy(work: Work, seconds: float) -> None:
    for _ in _under_load(work, seconds):
        pass
