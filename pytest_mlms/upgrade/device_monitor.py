"""Monitor of a device between the rounds of an upgrade."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from pytest_mlms.errors import InvalidRun
from pytest_mlms.host.gpu_monitor import GpuMonitor, GpuReading, gpu_notes, gpu_problems, open_gpu
from pytest_mlms.upgrade.agents import AgentPair

__all__ = ["DeviceMonitor", "monitor_device"]


@dataclass
class DeviceMonitor:
    """Readings of a device before the first round and after each round.

    Without a ``gpu`` there are none, and every round can be trusted. ``note`` gets the fields of
    the item's line: the readings, and what they say in words.
    """

    gpu: GpuMonitor | None
    note: Callable[..., None]
    notes: list[str] = field(init=False, default_factory=list)
    _readings: list[GpuReading] = field(init=False, default_factory=list)
    _own_pids: set[int] = field(init=False, default_factory=set)

    def check_idle(self) -> list[str]:
        """Return why the device is not free before the first round, [] where it is."""
        if self.gpu is None:
            return []
        reading = self.gpu.read(loaded=False)
        self._readings.append(reading)
        return gpu_problems(self._readings, self._own_pids)

    def check(self, pair: AgentPair) -> list[str]:
        """Read the state after a round of ``pair``; return why the round cannot be trusted."""
        if self.gpu is None:
            return []
        self._own_pids |= pair.pids
        reading = self.gpu.read(loaded=True)
        self._readings.append(reading)
        self.notes = gpu_notes(self._readings)
        self.note(gpu_readings=list(self._readings), gpu_notes=self.notes)
        return gpu_problems(self._readings, self._own_pids)


@contextlib.contextmanager
def monitor_device(device: str, note: Callable[..., None]) -> Iterator[DeviceMonitor]:
    """Open a monitor of a device such as "cuda:0"; for "cpu" it has nothing to read.

    Raises InvalidRun where something else uses the device, Unavailable where its driver cannot be
    asked.
    """
    if device == "cpu":
        yield DeviceMonitor(None, note)
        return
    with open_gpu(device) as gpu:
        monitor = DeviceMonitor(gpu, note)
        reasons = "; ".join(monitor.check_idle())
        if reasons:
            raise InvalidRun(f"device {device} is not free: {reasons}; end what uses it")
        yield monitor
