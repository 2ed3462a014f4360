"""Monitor of a device between the rounds of an upgrade."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from pytest_mlms.errors import InvalidRun
from pytest_mlms.host.gpu_monitor import GpuMonitor, GpuReading, gpu_notes, gpu_problems, open_gpu
from pytest_mlms.upgrade.agents import AgentPair

__all__ = ["DeviceMonitor", "monitor_device"]


class DeviceMonitor:
    """Readings of a device before the first round and after each round.

    Without a ``gpu`` there are none, and every round can be trusted. ``note`` gets the fields of
    the item's line: the readings, and what they say in words.
    """

    def __init__(self, gpu: GpuMonitor | None, note: Callable[..., None]) -> None:
        self.notes: list[str] = []
        self._gpu = gpu
        self._note = note
        self._readings: list[GpuReading] = []
        self._own_pids: set[int] = set()

    def check_idle(self) -> list[str]:
        """Return why the device is not free before the first round, [] where it is."""
        if self._gpu is None:
            return []
        self._readings.append(self._gpu.read(loaded=False))
        return gpu_problems(self._readings, self._own_pids)

    def check(self, pair: AgentPair) -> list[str]:
        """Read the state after a round of ``pair``; return why the round cannot be trusted."""
        if self._gpu is None:
            return []
        self._own_pids |= pair.pids
        self._readings.append(self._gpu.read(loaded=True))
        self.notes = gpu_notes(self._readings)
        self._note(gpu_readings=list(self._readings), gpu_notes=self.notes)
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
        reasons = monitor.check_idle()
        if reasons:
            raise InvalidRun(f"device {device} is not free: {'; '.join(reasons)}; end what uses it")
        yield monitor
