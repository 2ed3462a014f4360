"""Memory of this process on its device: the peak, by the framework's own counter and by NVML.

A framework counts what it takes from its pool. NVML has what the process holds, with the context of
CUDA, at the moment: its peak is the largest of the readings, which are taken between calls.
"""

import functools
import os
from typing import Callable, Dict, Optional

from .gpus import NvmlDevice
from .probe import ProbeUnavailable
from .replies import DeviceBytes

NVML = "NVML"
_open = functools.lru_cache(maxsize=None)(NvmlDevice)  # for the rest of the process


class DeviceMemory:
    """The peak on a device since this was made, which is before a model loads.

    ``count`` tells the framework's counter, once the model is there.
    """

    def __init__(self, device: str) -> None:
        self.count: Callable[[], Dict[str, int]] = dict
        self._device = device
        self._largest = 0
        self._own: Optional[int] = None
        try:
            self._others = set(_open(device).memory_by_process())
        except ProbeUnavailable:
            self._others = set()

    def read(self) -> Optional[DeviceBytes]:
        """Return the peak; None on the CPU, whose memory is the host's."""
        if self._device == "cpu":
            return None
        counters = dict(self.count())
        try:
            self._largest = max(self._largest, self._held())
        except ProbeUnavailable as error:
            return DeviceBytes(counters, "" if counters else str(error))
        counters[NVML] = self._largest
        return DeviceBytes(counters)

    def peak(self) -> int:
        """Return the peak by the first of its counters, 0 where none tells it."""
        found = self.read()
        return first_of(found.counters, 0) if found else 0

    def now(self) -> Optional[int]:
        """Return what the process holds now, or what is used on the device; None if untold."""
        try:
            return self._held()
        except ProbeUnavailable:
            pass
        try:
            return _open(self._device).memory().used
        except ProbeUnavailable:
            return None

    def room(self) -> Optional[int]:
        """Return the bytes that the model's copies could take; None where NVML doesn't tell.

        They are free, or in the framework's pool, whose peak is taken to be in use.
        """
        try:
            held = self._held()
            free = _open(self._device).memory().free
        except ProbeUnavailable:
            return None
        return free + max(0, held - first_of(self.count(), held))

    def _held(self) -> int:
        by_process = _open(self._device).memory_by_process()
        if self._own not in by_process:
            self._own = self._find(set(by_process))
        held = by_process[self._own]
        if held is None:
            raise ProbeUnavailable("NVML doesn't tell the memory of single processes here")
        return held

    def _find(self, running):
        """Return the id under which NVML lists this process: in a container one that is new."""
        if os.getpid() in running:
            return os.getpid()
        new = running - self._others
        if len(new) == 1:
            return new.pop()
        text = "NVML lists no process %d, and %d that are new; in a container share the host's ids"
        raise ProbeUnavailable(text % (os.getpid(), len(new)))


def first_of(counters: Dict[str, int], default: int) -> int:
    """Return the bytes by the first counter."""
    return next(iter(counters.values()), default)
