"""Monitoring of a GPU during a measurement, and checks of the readings.

The readings are those of NVML, by nvidia-ml-py (extra ``gpu``); docs.nvidia.com/deploy/nvml-api
has the meaning of each value. Nothing is read while calls are timed.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from mlms_predictors._run.gpus import (
    field_value,
    import_pynvml,
    instant_power,
    open_gpu_handle,
    whole_gpu,
)

from pytest_mlms.core.errors import Unavailable
from pytest_mlms.core.extras import install

_CLOCK_CHANGE = 0.05  # of the SM clock under load; steps of boost are of 15 MHz, about 1 %
_SLOWED = 0.01  # of the time: what half the clock adds to a mean by then
_HOST_BOUND = 0.5  # of the time of calls, in which kernels run
_PERIOD = 0.05  # seconds between glances after calls of one side
_SETTLED = 3.0  # seconds: the driver's means are of one at most, and it may begin with memory
_HW_SLOWDOWN = 0x8  # one of its causes, too much power at once, or a change of the P-state
_ITS_CAUSES = 0x40 | 0x80

_POWER_CAP = "it was at its power limit"
_REASONS = {
    0x4: (_POWER_CAP, (74,)),
    0x20: ("it was too hot (driver)", (75, 251, 269)),
    0x40: ("it was too hot (hardware)", (252, 270)),
    0x80: ("the power supply braked it", (253, 271)),
}
"""Bit of NVML's clocks event reasons -> the reason, and fields that count its nanoseconds.

Drivers up to 580.65 count some in 251 to 253, later ones in 269 to 271. The other three are then
settings of power smoothing, which don't rise.
"""


@dataclass(frozen=True)
class GpuReading:
    """One reading of a GPU, and what happened since the one before.

    Clocks are in MHz, power in W (``instant_power`` now, ``power`` a mean over a second on most
    GPUs), temperatures in degrees Celsius; ``throttled`` and ``capped`` are reasons in words,
    ``processes`` are PIDs. ``loaded`` says that our agents used the GPU meanwhile: the clock is
    then the median just after their calls, ``clocks`` those of each side of an upgrade, and
    ``slowed`` the share of the ``seconds`` for which each reason held the clocks down, by counters
    of the driver. ``busy`` is the share of a second of calls in which a kernel ran. A value that
    the driver doesn't give is None or missing.
    """

    loaded: bool
    sm_clock: float | None
    memory_clock: int | None
    power: float | None
    power_limit: float | None
    temperature: int | None
    throttled: tuple[str, ...]
    capped: tuple[str, ...]
    processes: tuple[int, ...] | None
    instant_power: float | None = None
    seconds: float = 0.0
    slowed: Mapping[str, float] = field(default_factory=dict)
    clocks: Mapping[str, float] = field(default_factory=dict)
    busy: float | None = None

    @property
    def is_capped(self) -> bool:
        """True if the power limit held the clocks down, which is the work's own doing."""
        return bool(self.capped) or self.slowed.get(_POWER_CAP, 0.0) > _SLOWED


class GpuMonitor:
    """Reads the state of the GPU that CUDA calls cuda:``ordinal``.

    ``nvml`` is the module pynvml, initialized. Of a slice of a GPU (MIG) all but the processes is
    that of the GPU. Raises LookupError where there is no such GPU.
    """

    def __init__(self, nvml: Any, ordinal: int) -> None:
        self._nvml = nvml
        self._device = open_gpu_handle(nvml, ordinal)
        self._whole = whole_gpu(nvml, self._device)
        self.begin()

    def begin(self) -> None:
        """Begin what the next reading tells of."""
        self._began = time.monotonic()
        self._counted = self._counters()
        self._clocks: dict[str, list[int]] = {}
        self._reasons: list[int] = []
        self._due: dict[str, float] = {}
        self._busy: list[float] = []

    def glance(self, side: str, steady: bool = False) -> None:
        """Note the clock and what holds it down, just after calls of a side.

        After ``steady`` ones, which followed each other for a second, also how busy the GPU was.
        """
        nvml = self._nvml
        if steady:
            self._busy += self._utilization()
        elif time.monotonic() < self._due.get(side, 0.0):
            return
        clock = self._ask(nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_SM)
        if clock is not None:
            self._clocks.setdefault(side, []).append(clock)
        self._reasons.append(self._bits())
        self._due[side] = time.monotonic() + _PERIOD

    def read(self, loaded: bool) -> GpuReading:
        """Read the state of the GPU now, and begin anew."""
        nvml = self._nvml
        clocks = {side: median(noted) for side, noted in self._clocks.items()}
        now = self._ask(nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_SM)
        held = _in_words([*self._reasons, self._bits()])
        reading = GpuReading(
            loaded=loaded,
            sm_clock=min(clocks.values(), default=now),
            memory_clock=self._ask(nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_MEM),
            power=self._ask_watts(nvml.nvmlDeviceGetPowerUsage),
            power_limit=self._ask_watts(nvml.nvmlDeviceGetEnforcedPowerLimit),
            temperature=self._ask(nvml.nvmlDeviceGetTemperature, nvml.NVML_TEMPERATURE_GPU),
            throttled=tuple(reason for reason in held if reason != _POWER_CAP),
            capped=tuple(reason for reason in held if reason == _POWER_CAP),
            processes=self._processes(),
            instant_power=self._instant_power(),
            seconds=time.monotonic() - self._began,
            slowed=self._slowed() if loaded else {},
            clocks=clocks if len(clocks) > 1 else {},
            busy=max(self._busy, default=None),
        )
        self.begin()
        return reading

    def unlisted_work(self) -> list[str]:
        """Return that kernels run while we run none, [] if not; the driver lists no process then.

        Waits until the driver's mean of a second or less has nothing of what ran before.
        """
        end = time.monotonic() + _SETTLED
        while (share := max(self._utilization(), default=0.0)) >= _HOST_BOUND:
            if time.monotonic() > end:
                return [f"kernels run{_of_time(share)}, of a program that the driver doesn't list"]
            time.sleep(_PERIOD)
        return []

    def _utilization(self) -> list[float]:
        """Return the share of the last second or less in which kernels ran, [] if not told."""
        rates = self._ask(self._nvml.nvmlDeviceGetUtilizationRates)
        return [] if rates is None else [rates.gpu / 100]

    def _bits(self) -> int:
        return self._ask(self._nvml.nvmlDeviceGetCurrentClocksThrottleReasons) or 0

    def _counters(self) -> dict[int, int]:
        """Return the nanoseconds that clocks were held down, by field."""
        found = {}
        for _, fields in _REASONS.values():
            for number in fields:
                with contextlib.suppress(self._nvml.NVMLError):
                    found[number] = field_value(self._nvml, self._whole, number)
        return found

    def _slowed(self) -> dict[str, float]:
        """Return the share of the time for which each reason that is counted held clocks down."""
        seconds = time.monotonic() - self._began
        now = self._counters()
        rises = {
            number: now[number] - was for number, was in self._counted.items() if number in now
        }
        shares = {}
        for reason, fields in _REASONS.values():
            counted = [rises[number] for number in fields if number in rises]
            if counted:
                shares[reason] = min(1.0, max(0, *counted) * 1e-9 / seconds)
        return shares

    def _ask(self, function: Any, *arguments: Any) -> Any:
        """Return the driver's answer, None where it gives none."""
        try:
            return function(self._whole, *arguments)
        except self._nvml.NVMLError:  # not supported on this model, or not allowed
            return None

    def _ask_watts(self, function: Any) -> float | None:
        milliwatts = self._ask(function)
        if milliwatts is None:
            return None
        return float(milliwatts / 1000)

    def _instant_power(self) -> float | None:
        try:
            return float(instant_power(self._nvml, self._whole))
        except self._nvml.NVMLError:
            return None

    def _processes(self) -> tuple[int, ...] | None:
        try:
            processes = self._nvml.nvmlDeviceGetComputeRunningProcesses(self._device)
        except self._nvml.NVMLError:
            return None
        return tuple(sorted(process.pid for process in processes))


def _in_words(readings: Sequence[int]) -> list[str]:
    """Return the reasons of more than 1 % of some readings of NVML's bits.

    A slow-down of the hardware without a cause counts from the second time on: a change of the
    P-state is told as one, too.
    """
    few = _SLOWED * len(readings)
    found = [
        reason
        for bit, (reason, _) in _REASONS.items()
        if sum(each & bit > 0 for each in readings) > few
    ]
    unexplained = [each for each in readings if each & _HW_SLOWDOWN and not each & _ITS_CAUSES]
    return [*found, "the hardware slowed down"] if len(unexplained) > max(1, few) else found


@contextlib.contextmanager
def open_gpu(device: str) -> Iterator[GpuMonitor]:
    """Yield a monitor of the GPU of a device such as cuda:1.

    Raises Unavailable where nvidia-ml-py is missing or too old, or the driver gives no answer.
    """
    try:
        pynvml = import_pynvml()
    except ImportError:
        problem = "its clocks are read by nvidia-ml-py from version 12 on"
        raise Unavailable(f"device {device}: {problem}; {install('gpu')}") from None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        problem = f"the NVIDIA driver can't be asked for its state: {error}"
        raise Unavailable(f"device {device}: {problem}") from None
    try:
        yield GpuMonitor(pynvml, int(device.partition(":")[2] or 0))
    except (pynvml.NVMLError, LookupError) as error:
        raise Unavailable(f"device {device}: {error}") from None
    finally:
        pynvml.nvmlShutdown()


def gpu_problems(
    readings: Sequence[GpuReading], own: Collection[int], agents: int = 2
) -> list[str]:
    """Return the reasons not to trust a measurement between these readings.

    ``own`` are the PIDs of our agents. In a container the driver gives other PIDs for them: then
    as many more processes as there are ``agents`` at a time are taken for ours.
    """
    problems = []
    for reasons in sorted({reading.throttled for reading in readings if reading.loaded}):
        if reasons:
            problems.append(f"throttled: {', '.join(reasons)}")
    problems += _slow_problems(readings)
    foreign = _foreign_processes(readings, own, agents)
    if foreign:
        pids = ", ".join(map(str, foreign))
        problems.append(f"other processes were on it: {pids}")
    problems += _clock_problems(readings)
    problems += _power_limit_problems(readings)
    return problems


def _slow_problems(readings: Sequence[GpuReading]) -> list[str]:
    """Return the problems that the driver's counters tell, and no single reading did."""
    told = {reason for reading in readings for reason in reading.throttled}
    worst: dict[str, float] = {}
    for reading in readings:
        for reason, share in reading.slowed.items():
            if share > max(_SLOWED, worst.get(reason, 0.0)) and reason not in {_POWER_CAP, *told}:
                worst[reason] = share
    return [f"throttled: {reason}{_of_time(share)}" for reason, share in worst.items()]


def _of_time(share: float) -> str:
    return f" for {100 * share:.0f} % of the time"


def _clock_problems(readings: Sequence[GpuReading]) -> list[str]:
    """Return changes of the clock that the power limit doesn't explain.

    Both sides of an upgrade are compared within each round: a clock that both have is no problem.
    """
    for reading in readings:
        a, b = reading.clocks.get("a"), reading.clocks.get("b")
        if a and b and _is_change(a, b) and not reading.is_capped:
            return [f"its clock was {a:.0f} MHz in A's turns and {b:.0f} MHz in B's"]
    clocks = [
        (each.sm_clock, each.is_capped)
        for each in readings
        if each.loaded and each.sm_clock and not each.clocks
    ]
    most = max((clock for clock, _ in clocks), default=0.0)
    least = min((clock for clock, is_capped in clocks if not is_capped), default=most)
    if not _is_change(most, least):
        return []
    return [f"its clock changed from {most:.0f} to {least:.0f} MHz"]


def _is_change(*clocks: float) -> bool:
    return max(clocks) > (1 + _CLOCK_CHANGE) * min(clocks)


def _power_limit_problems(readings: Sequence[GpuReading]) -> list[str]:
    limits = {reading.power_limit for reading in readings}
    known = [f"{limit:g} W" for limit in limits if limit is not None]
    if len(known) < 2 or not any(reading.is_capped for reading in readings):
        return []  # some boards move it all the time, and it counts where it is reached
    shown = " and ".join(sorted(known))
    return [f"its power limit was set anew: {shown}"]


def _foreign_processes(
    readings: Sequence[GpuReading], own: Collection[int], agents: int
) -> list[int]:
    """Return the PIDs on the GPU of other processes than our agents."""
    ours = set(own)
    before: set[int] = set()
    for reading in readings:
        if not reading.loaded:
            before.update(reading.processes or ())
    foreign = before - ours
    later = []
    for reading in readings:
        if reading.loaded:
            later.append(set(reading.processes or ()) - foreign)
    are_pids_ours = any(pids & ours for pids in later)
    for pids in later:
        if are_pids_ours:
            foreign |= pids - ours
        elif len(pids) > agents:  # the driver gives the PIDs of another namespace
            foreign |= pids
    return sorted(foreign)


def gpu_facts(readings: Sequence[GpuReading]) -> str:
    """Return the least and the greatest clock, power and temperature at work, "" if not told."""
    busy = [reading for reading in readings if reading.loaded]
    clocks = [clock for each in busy for clock in each.clocks.values() or [each.sm_clock]]
    ranges = [
        _range(clocks, "MHz"),
        _range([reading.power for reading in busy], "W"),
        _range([reading.temperature for reading in busy], "°C"),
        _range([None if each.busy is None else 100 * each.busy for each in busy], "% busy"),
    ]
    known = [part for part in ranges if part]
    return f"GPU {', '.join(known)}" if known else ""


def gpu_limits(readings: Sequence[GpuReading]) -> str:
    """Return for how much of the time the power limit held clocks down at most, "" if it didn't.

    The side of an upgrade with the lower clock draws more power.
    """
    capped = [reading for reading in readings if reading.loaded and reading.is_capped]
    if not capped:
        return ""
    share = max(reading.slowed.get(_POWER_CAP, 0.0) for reading in capped)
    text = _POWER_CAP + (_of_time(share) if share > _SLOWED else "")
    sides = [(each.clocks["a"], each.clocks["b"]) for each in capped if len(each.clocks) == 2]
    if sides and any(_is_change(a, b) for a, b in sides):
        a, b = (median(clocks) for clocks in zip(*sides, strict=True))
        text += f", at {a:.0f} MHz in A's turns and {b:.0f} MHz in B's"
    return text


def host_bound(readings: Sequence[GpuReading]) -> str:
    """Return that the GPU waited for the host for most of the time of calls, "" if it didn't."""
    busy = [reading.busy for reading in readings if reading.busy is not None]
    if not busy or max(busy) >= _HOST_BOUND:
        return ""
    return f"host-bound: kernels ran{_of_time(max(busy))}, the rest is the host's and copies"


def unlisted(readings: Sequence[GpuReading]) -> str:
    """Return that the driver lists no processes, "" where it lists ours at least."""
    if any(reading.loaded and reading.processes for reading in readings):
        return ""
    return "whether other programs were on the GPU isn't known: its driver doesn't list them"


def _range(values: Sequence[float | None], unit: str) -> str:
    """Return the least and the greatest value with a unit, "" where none is known."""
    known = [value for value in values if value is not None]
    if not known:
        return ""
    low = f"{min(known):.0f}"
    high = f"{max(known):.0f}"
    if low == high:
        return f"{low} {unit}"
    return f"{low} to {high} {unit}"
