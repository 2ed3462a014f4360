"""Monitor of the device of an item while its processes are measured."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import psutil

from pytest_mlms.core.errors import InvalidRun, Unavailable
from pytest_mlms.core.units import format_quantity
from pytest_mlms.measure.agent.predictor import Predictor
from pytest_mlms.measure.agent.process import WORKER

if TYPE_CHECKING:
    from pytest_mlms.decide.upgrade.agents import AgentPair
    from pytest_mlms.provide.host.gpu_monitor import GpuMonitor, GpuReading

_SAMPLED = 1.0  # seconds that NVML's utilization is of, or less

P = ParamSpec("P")
Opened = TypeVar("Opened", bound="Predictor | AgentPair")


@dataclass
class DeviceMonitor:
    """Readings of a device before the first process, and after each one or each round.

    Without a ``gpu`` there are none, and everything can be trusted. ``note`` gets the fields of
    the item's line: the readings, and what they say in words. ``doubts`` are what a person should
    know of them. ``model_bytes`` is the size of the model's files.
    """

    gpu: GpuMonitor | None
    note: Callable[..., None]
    model_bytes: int
    notes: list[str] = field(init=False, default_factory=list)
    doubts: str = ""
    _readings: list[GpuReading] = field(init=False, default_factory=list)
    _own_pids: set[int] = field(init=False, default_factory=set)
    _l2_bytes: int = field(init=False, default=0)
    _agents: int = field(init=False, default=0)
    _is_watching: bool = field(init=False, default=False)

    def check_idle(self) -> list[str]:
        """Return why the device is not free before the first process, [] where it is."""
        if self.gpu is None:
            return []
        return self._read(self.gpu, loaded=False) or self.gpu.unlisted_work()

    def watching(
        self, opening: Callable[P, AbstractContextManager[Opened]]
    ) -> Callable[P, AbstractContextManager[Opened]]:
        """Return a function that opens what ``opening`` does, and watches the device meanwhile."""

        @contextlib.contextmanager
        def opened(*args: P.args, **keywords: P.kwargs) -> Iterator[Opened]:
            with opening(*args, **keywords) as made:
                self._begin([made] if isinstance(made, Predictor) else [made.a, made.b])
                yield made
                if self._is_watching:
                    self.check()

        return opened

    def _begin(self, predictors: Sequence[Predictor]) -> None:
        if self.gpu is None:
            return
        for side, predictor in zip("ab", predictors, strict=False):
            self._own_pids.add(predictor.agent.pid)
            predictor.agent.after_calls = functools.partial(self._glance, self.gpu, side)
        self._l2_bytes = predictors[-1].l2_bytes
        self._agents = max(self._agents, len(predictors))
        self._is_watching = True
        self.gpu.begin()

    def _glance(self, gpu: GpuMonitor, side: str, kind: str, asked: Mapping[str, Any]) -> None:
        gpu.glance(side, steady=kind == "run" and asked["stop"]["seconds"] >= _SAMPLED)

    def check(self) -> list[str]:
        """Read the state after a round or process; return why nothing so far can be trusted."""
        if self.gpu is None:
            return []
        from pytest_mlms.provide.host.gpu_monitor import gpu_facts, gpu_limits, host_bound, unlisted

        self._is_watching = False
        problems = self._read(self.gpu, loaded=True)
        doubts = [check(self._readings) for check in (host_bound, gpu_limits, unlisted)]
        self.doubts = "; ".join(text for text in doubts if text)
        weights = weights_in_l2(self.model_bytes, self._l2_bytes)
        self.notes = [text for text in (gpu_facts(self._readings), weights, *doubts) if text]
        self.note(gpu_readings=list(self._readings), gpu_notes=self.notes)
        return problems

    def problems(self) -> list[str]:
        """Return why the measurement can't be trusted, also of a process that goes on."""
        if self._is_watching:
            return self.check()
        return self._problems()

    def with_doubts(self, doubts: str = "") -> str:
        """Return doubts about the measurement, and about the device."""
        return "; ".join(text for text in (doubts, self.doubts) if text)

    def _read(self, gpu: GpuMonitor, loaded: bool) -> list[str]:
        reading = gpu.read(loaded)
        self._readings.append(reading)
        self._own_pids.update(filter(_is_agent, reading.processes or ()))
        return self._problems()

    def _problems(self) -> list[str]:
        """Return the objections of the readings so far to the measurement."""
        if not self._readings:
            return []
        from pytest_mlms.provide.host.gpu_monitor import gpu_problems

        return gpu_problems(self._readings, self._own_pids, self._agents)


def weights_in_l2(model_bytes: int, l2_bytes: int) -> str:
    """Return whether calls find a model's weights in the L2 cache of a GPU, "" if not known."""
    if not l2_bytes:
        return ""
    state = "hot" if 2 * model_bytes <= l2_bytes else "partly hot"
    if model_bytes > l2_bytes:
        state = "cold"
    sizes = " of ".join(format_quantity(size, "B") for size in (model_bytes, l2_bytes))
    return f"L2 {state} ({sizes})"


def _is_agent(pid: int) -> bool:
    """Return whether a process is an agent, or was started by one, as compilers start some.

    One that another worker of pytest keeps for its next item does nothing while we have the lock
    of the device.
    """
    try:
        process = psutil.Process(pid)
        return any(map(_runs_agent, (process, *process.parents())))
    except psutil.Error:
        return False


def _runs_agent(process: psutil.Process) -> bool:
    return any(word.endswith("/".join(WORKER.parts[-2:])) for word in process.cmdline())


@contextlib.contextmanager
def monitor_device(
    device: str, note: Callable[..., None], model_bytes: int = 0, is_needed: bool = True
) -> Iterator[DeviceMonitor]:
    """Open a monitor of a device such as "cuda:0"; for other devices it has nothing to read.

    Raises InvalidRun where something else uses the device. Where its driver cannot be asked,
    raises Unavailable if the monitor ``is_needed``; else that is a doubt.
    """
    with contextlib.ExitStack() as opened:
        monitor = DeviceMonitor(None, note, model_bytes)
        if device.startswith("cuda"):
            from pytest_mlms.provide.host.gpu_monitor import open_gpu

            try:
                monitor.gpu = opened.enter_context(open_gpu(device))
            except Unavailable as error:
                if is_needed:
                    raise
                monitor.doubts = f"whether the GPU was slowed down isn't known: {error}"
                note(gpu_notes=[monitor.doubts])
        reasons = "; ".join(monitor.check_idle())
        if reasons:
            raise InvalidRun(f"device {device} is not free: {reasons}; end what uses it")
        yield monitor
