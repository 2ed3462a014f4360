"""Clocks under and after load, and energy beside the integral of power."""

from __future__ import annotations

import contextlib
import itertools
import os
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from gpu_steps.facts import Facts
from gpu_steps.torch_work import Work, products

__all__ = ["clocks", "energy"]

MOST = 0.03
LOADS = {"float32": 6.0, "bfloat16": 6.0}  # seconds of each
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
    from pytest_mlms.host.gpu_monitor import gpu_notes, gpu_problems, open_gpu

    with open_gpu(device) as monitor:
        for dtype, seconds in LOADS.items():
            before = monitor.read(loaded=False)
            readings = list(_under_load(products(device, 8192, 20, dtype), seconds, monitor.read))
            found = [reading.sm_clock for reading in readings if reading.sm_clock]
            facts.tell(load=dtype, first=readings[:2], last=readings[-1])
            problems = gpu_problems([before, *readings], {os.getpid()})
            facts.tell(notes=gpu_notes(readings), problems=problems)
            shown = f"{min(found)} to {max(found)} MHz, {max(found) / min(found) - 1:.1%}"
            facts.figure(f"SM clock under a load of {dtype}", shown)
        ended = time.monotonic()
        for seconds in AFTER:
            time.sleep(max(ended + seconds - time.monotonic(), 0))
            facts.tell(after=seconds, reading=monitor.read(loaded=False))


def _under_load(work: Work, seconds: float, read: Callable[..., Any]) -> Iterator[Any]:
    import torch

    end = time.monotonic() + seconds
    while time.monotonic() < end:
        work()
        torch.cuda.synchronize()
        yield read(loaded=True)


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
    facts.tell(meter=meter.joules(), idle_watts=idle, missing=meter.missing)
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
    from mlms_predictors._run.probes.nvml import open_nvml

    nvml, handle = open_nvml(device)
    readings: list[Reading] = []
    ended = threading.Event()

    def read() -> None:
        while not ended.wait(0.005):
            joules = nvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1e3
            mean = nvml.nvmlDeviceGetPowerUsage(handle) / 1e3
            readings.append(Reading(time.perf_counter(), joules, _power_now(nvml, handle), mean))

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    try:
        yield readings
    finally:
        ended.set()
        thread.join()
        nvml.nvmlShutdown()


def _power_now(nvml: Any, handle: Any) -> float:
    """Return the power of this moment in watts; NaN where the driver doesn't tell it."""
    (found,) = nvml.nvmlDeviceGetFieldValues(handle, [nvml.NVML_FI_DEV_POWER_INSTANT])
    if found.nvmlReturn:
        return float("nan")
    return float(found.value.uiVal / 1e3)


def _keep_busy(work: Work, seconds: float) -> None:
    for _ in _under_load(work, seconds, lambda loaded: None):
        pass
