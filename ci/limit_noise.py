"""Simulated processes for ci/limit_study: the times of calls by kinds of noise.

Each kind has calls of 1 ms that scatter by 5 %, and something that varies beside it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.signal import lfilter

from pytest_mlms.measure.agent.predictor import ScenarioRun

__all__ = ["NOISES", "Machine", "SimulatedPredictor"]

Array: TypeAlias = NDArray[Any]

CALL = 1e-3  # seconds
START = 0.25  # seconds between two processes: what ONNX Runtime takes to start
SCATTER = 0.05
DRIFT = 0.05
DRIFT_SECONDS = 2.0
BURST_CALLS = 50
BURST_SHARE = 0.1
BLOCK = 256  # calls that are drawn at once


class Machine:
    """A simulated machine: its time, and its drift, which goes on between processes."""

    def __init__(self, generator: np.random.Generator) -> None:
        self.generator = generator
        self.seconds = 0.0
        self._drift = generator.normal() * DRIFT

    def drift(self, count: int, seconds: float) -> Array:
        """Return the next ``count`` values of the drift, which are ``seconds`` apart."""
        kept = math.exp(-seconds / DRIFT_SECONDS)
        steps = self.generator.normal(size=count) * DRIFT * math.sqrt(1 - kept**2)
        values, _ = lfilter([1], [1, -kept], steps, zi=[kept * self._drift])
        self._drift = float(values[-1])
        return np.asarray(values)


Factors: TypeAlias = Callable[[Machine, int, int], Array]
"""Factors of calls: those of a process from call ``first`` on, ``count`` of them."""


@dataclass(frozen=True)
class Noise:
    """A kind of noise: ``process`` draws the factor of a process, ``calls`` those of its calls.

    After ``settled`` calls a process doesn't get faster any more.
    """

    name: str
    process: Callable[[np.random.Generator], float] = lambda generator: 1.0
    calls: Factors = lambda machine, first, count: np.ones(count)
    settled: int = 0


def _heavy_tails(machine: Machine, first: int, count: int) -> Array:
    is_slow = machine.generator.random(count) < 0.02
    lengths = np.minimum(machine.generator.pareto(1.5, count), 50)
    return 1 + np.where(is_slow, lengths, 0.0)


def _bursts(machine: Machine, first: int, count: int) -> Array:
    starts = machine.generator.random(count) < BURST_SHARE / BURST_CALLS
    inside = np.convolve(starts, np.ones(BURST_CALLS))[:count] > 0
    return np.where(inside, 1.5, 1.0)


def _drift(machine: Machine, first: int, count: int) -> Array:
    return np.exp(machine.drift(count, CALL))


def _decay(excess: float, calls: int) -> Factors:
    """Return factors that fall from 1 + ``excess`` to 1, by a factor of e in so many calls."""

    def factors(machine: Machine, first: int, count: int) -> Array:
        return np.asarray(1 + excess * np.exp(-np.arange(first, first + count) / calls))

    return factors


def _step(factor: float, calls: int) -> Factors:
    """Return factors of the first ``calls`` calls, which are slower."""

    def factors(machine: Machine, first: int, count: int) -> Array:
        return np.where(np.arange(first, first + count) < calls, factor, 1.0)

    return factors


def _differing(deviation: float) -> Noise:
    def draw(generator: np.random.Generator) -> float:
        return math.exp(deviation * generator.normal())

    return Noise(f"processes differ by {100 * deviation:.0f} %", process=draw)


NOISES: Sequence[Noise] = (
    Noise("independent"),
    Noise("heavy tails", calls=_heavy_tails),
    Noise("bursts", calls=_bursts),
    Noise("drift", calls=_drift),
    Noise("settling", calls=_decay(0.5, 500), settled=3000),
    Noise("slow settling", calls=_decay(9, 1000), settled=9000),
    Noise("a late step", calls=_step(1.5, 500), settled=500),
    _differing(0.01),
    _differing(0.02),
    _differing(0.05),
    Noise("two states, ±20 %", process=lambda generator: generator.choice([0.8, 1.2])),
    Noise(
        "one in ten at 2.1", process=lambda generator: generator.choice([1.0, 2.1], p=[0.9, 0.1])
    ),
)


class SimulatedPredictor:
    """A process of a simulated machine, as measure_performance uses a Predictor.

    A call takes ``seconds`` before any noise.
    """

    device = "cpu"
    load_waited = 0.0
    peak_is_since_load = True
    unmeasured: ClassVar[dict[str, str]] = {}
    rss_before = 0
    import_seconds = None

    def __init__(self, machine: Machine, noise: Noise, seconds: float = CALL) -> None:
        machine.drift(1, START)
        machine.seconds += START
        self.start_seconds = START
        self.load_seconds = 0.01
        self._machine = machine
        self._noise = noise
        self._seconds = seconds * noise.process(machine.generator)
        self._drawn = 0
        self._left = np.empty(0)

    def run(
        self,
        scenario: str,
        batches: Sequence[Mapping[str, Array]] = (),
        *,
        seconds: float,
        least: int,
        longest: float,
        idle: float = 0.0,
        order: Sequence[int] = (),
    ) -> ScenarioRun:
        """Return simulated times of a scenario."""
        while len(self._left) < least or self._left.sum() < seconds:
            self._left = np.concatenate([self._left, self._draw()])
        enough = int(np.searchsorted(np.cumsum(self._left), seconds)) + 1
        count = max(enough, least)
        latencies = self._left[:count]
        self._left = self._left[count:]
        end = np.cumsum(latencies)
        self._machine.seconds += float(end[-1])
        times = {
            "start": end - latencies,
            "end": end,
            "wait": np.zeros(2),
            "at": np.array([0, count]),
        }
        return ScenarioRun(times, {}, "", 0)

    def _draw(self) -> Array:
        scatter = np.exp(SCATTER * self._machine.generator.normal(size=BLOCK))
        factors = self._noise.calls(self._machine, self._drawn, BLOCK)
        self._drawn += BLOCK
        return np.asarray(self._seconds * scatter * factors)
