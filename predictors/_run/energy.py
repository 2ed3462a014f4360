"""Energy of the device over an interval, as the difference of two readings of a counter.

On the CPU it is the energy of RAPL's packages and memory (DRAM): all that the machine does, whoever
does it. On an NVIDIA GPU it is the whole device's, by NVML, without the host. Nothing is modelled,
and what has no counter is missing.
"""

import time
from typing import Any, Dict, Optional

from .gpus import NvmlDevice
from .probe import Probe, ProbeUnavailable
from .probes.nvml import STEPS
from .probes.rapl import Rapl
from .process import unseen

SHORTEST = 0.1  # seconds; those of GPUs need STEPS of their counter
_GAPS = 3  # between steps of a GPU's counter, whose median is its period
_LONGEST_STEP = 0.5  # seconds
_COUNTED = ("package-", "dram ", "gpu energy")
"""Beginnings of the names of counters. RAPL's others are parts of a package, or contain it."""


class EnergyMeter:
    """The counters of a device; ``missing`` says why there are none, or is empty.

    ``period`` are the seconds in which a GPU's counter advances, measured once a process and
    device, None for the CPU. An interval of less than ``shortest`` seconds has no energy.
    """

    _periods: Dict[str, float] = {}

    def __init__(self, device: str):
        self.missing = ""
        self.period: Optional[float] = None
        self.shortest = SHORTEST
        self._probe: Any = Rapl(device) if device == "cpu" else _GpuEnergy(device)
        self._first: Dict[str, float] = {}
        self._began = 0.0
        try:
            if unseen():
                raise ProbeUnavailable(unseen())
            self._probe.start()
            if not self.read():
                reasons = "; ".join(sorted(set(self._probe.missing.values())))
                why = self.missing or reasons or "the device has none"
                raise ProbeUnavailable("no counter of energy; " + why)
            if device != "cpu":
                self.period = self._find_period(device)
                self.shortest = max(SHORTEST, STEPS * self.period)
        except ProbeUnavailable as error:
            self.missing = str(error)

    def read(self) -> Dict[str, float]:
        """Return joules by counter, from any start; none where they are missing.

        Counters of RAPL wrap within an hour or less, and must be read more often than that.
        """
        if self.missing:
            return {}
        try:
            counters = self._probe.read()
        except ProbeUnavailable as error:
            self.missing = str(error)
            return {}
        except Exception as error:  # a driver may end; the load goes on
            self.missing = "%s: %s" % (type(error).__name__, error)
            return {}
        found = {}
        for name, value in counters.items():
            if name.startswith(_COUNTED):
                found[name] = float(value)
        return found

    def begin(self) -> None:
        """Let the interval begin."""
        self._began = time.perf_counter()
        self._first = self.read()

    def joules(self) -> Dict[str, float]:
        """Return the joules by counter since the begin; none of an interval that is too short."""
        last = self.read()
        seconds = time.perf_counter() - self._began
        if not self.missing and seconds < self.shortest:
            self.missing = "timed for %.3f s, and counters need %.2g s" % (seconds, self.shortest)
        if self.missing:
            return {}
        for name, value in self._first.items():
            if last.get(name, -1.0) < value:
                what = "went backwards" if name in last else "ended"
                self.missing = "the counter %s %s" % (name, what)
                return {}
        return {name: last[name] - value for name, value in self._first.items()}

    def idle_watts(self, seconds: float) -> Dict[str, float]:
        """Sleep for some seconds or longer; return the mean power by counter. None for 0 s."""
        if self.missing or not seconds:
            return {}
        self.begin()
        time.sleep(max(seconds, self.shortest))
        joules = self.joules()
        passed = time.perf_counter() - self._began
        return {name: value / passed for name, value in joules.items()}

    def close(self) -> None:
        """Leave the counters."""
        self._probe.stop()

    def _find_period(self, device):
        if device not in self._periods:
            steps = [self._next_step() for _ in range(_GAPS + 1)]
            gaps = [steps[place + 1] - steps[place] for place in range(_GAPS)]
            self._periods[device] = sorted(gaps)[_GAPS // 2]
        return self._periods[device]

    def _next_step(self):
        """Wait for the counter to advance; return when it did."""
        before = self.read()
        end = time.monotonic() + _LONGEST_STEP
        while time.monotonic() < end:
            if self.read() not in (before, {}):
                return time.monotonic()
            time.sleep(0.001)
        raise ProbeUnavailable(self.missing or "the counter of energy stands still")


class _GpuEnergy(Probe):
    """The counter of a GPU; the probe ``nvml`` would ask for all else at each reading, too."""

    _gpu: Any = None

    def start(self):
        self._gpu = NvmlDevice(self.device)

    def read(self):
        return {"gpu energy": self._gpu.joules()}

    def stop(self):
        if self._gpu is not None:
            self._gpu.close()
            self._gpu = None
