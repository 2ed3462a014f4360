"""Simulated rounds for ``ci/gate_study --simulate``: the times of calls by kinds of noise.

Calls of 1 ms scatter by 5 %, in turns of two as the gate makes them of such calls. One thing varies
beside that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.signal import lfilter

from pytest_mlms.upgrade.figures import Figure, figures_of
from pytest_mlms.upgrade.rounds import Round, Side

__all__ = [
    "NOISES",
    "OF_CALLS",
    "OF_PROCESS",
    "Generator",
    "Noise",
    "figures_of_process",
    "simulated_figures",
]

Array: TypeAlias = NDArray[Any]
Generator: TypeAlias = np.random.Generator
Factors: TypeAlias = Callable[[Generator, int], Array]
"""Factors of so many calls in their order."""

CALL = 1e-3  # seconds
CALLS = 2  # of a turn
SCATTER = 0.05
CPU_SCATTER = 0.02
BURST_CALLS = 50
BURST_SHARE = 0.1
DRIFT = 0.02
DRIFT_CALLS = 500
SLOW_CALL = 1.5
SLOW_PROCESS = 1.4

OF_CALLS = ("latency", "cpu_time", "wall_time", "latency_p90", "latency_p95", "throughput")
"""Quantities that follow the calls of a round."""

OF_PROCESS = {"load_time": 0.20, "first_inference": 0.20, "peak_memory": 0.02}
"""Quantity that a process has once -> its standard deviation between processes, as a share."""


def _ones(generator: Generator, count: int) -> Array:
    return np.ones(count)


@dataclass(frozen=True)
class Noise:
    """A kind of noise.

    ``shared`` has the factors of all calls of a round in their order, whichever side makes them,
    and ``own`` those of the calls of one process. Processes differ by ``offset``, a standard
    deviation, and a share of ``slow`` of them takes 1.4 times as long.
    """

    name: str
    shared: Factors = _ones
    own: Factors = _ones
    offset: float = 0.0
    slow: float = 0.0

    def log_ratio(self, generator: Generator) -> float:
        """Return log(B / A) of two processes of a round, beside the noise of their calls."""
        a, b = self.offset * generator.normal(size=2)
        slow_a, slow_b = generator.random(2) < self.slow
        return float(b - a + math.log(SLOW_PROCESS) * (int(slow_b) - int(slow_a)))


def _heavy_tails(generator: Generator, count: int) -> Array:
    is_slow = generator.random(count) < 0.02
    lengths = np.minimum(generator.pareto(1.5, count), 50)
    return 1 + np.where(is_slow, lengths, 0.0)


def _bursts(generator: Generator, count: int) -> Array:
    starts = generator.random(count) < BURST_SHARE / BURST_CALLS
    inside = np.convolve(starts, np.ones(BURST_CALLS))[:count] > 0
    return np.where(inside, 1.5, 1.0)


def _two_modes(generator: Generator, count: int) -> Array:
    return np.where(generator.random(count) < 0.1, SLOW_CALL, 1.0)


def _two_modes_that_differ(generator: Generator, count: int) -> Array:
    share = generator.uniform(0.05, 0.15)
    return np.where(generator.random(count) < share, SLOW_CALL, 1.0)


def _drift(generator: Generator, count: int) -> Array:
    kept = math.exp(-1 / DRIFT_CALLS)
    steps = generator.normal(size=count) * DRIFT * math.sqrt(1 - kept**2)
    start = generator.normal() * DRIFT
    values, _ = lfilter([1], [1, -kept], steps, zi=[kept * start])
    return np.asarray(np.exp(values))


NOISES: Sequence[Noise] = (
    Noise("independent"),
    Noise("heavy tails", own=_heavy_tails),
    Noise("bursts", shared=_bursts),
    Noise("bimodal calls", own=_two_modes),
    Noise("bimodal, 5 to 15 % slow", own=_two_modes_that_differ),
    Noise("slow drift", own=_drift),
    Noise("processes differ by 0.3 %", offset=0.003),
    Noise("processes differ by 1 %", offset=0.01),
    Noise("processes differ by 2 %", offset=0.02),
    Noise("processes differ by 3 %", offset=0.03),
    Noise("one process in 12 at 1.4", offset=0.003, slow=1 / 12),
)


def simulated_figures(noise: Noise, pairs: int, generator: Generator) -> dict[str, Figure]:
    """Return the figures of a round of equal sides, by the functions that compute real ones.

    Without the processes' offsets, and without what a process has once.
    """
    order = generator.integers(2, size=pairs)
    rows = np.arange(pairs)
    shared = noise.shared(generator, 2 * CALLS * pairs).reshape(pairs, 2, CALLS)
    a = _simulated_side(noise, shared[rows, order], generator)
    b = _simulated_side(noise, shared[rows, 1 - order], generator)
    figures = figures_of(Round(a, b), "adj", batch_size=1)
    return {name: figures[name] for name in OF_CALLS}


def _simulated_side(noise: Noise, shared: Array, generator: Generator) -> Side:
    scatter = np.exp(SCATTER * generator.normal(size=shared.shape))
    own = noise.own(generator, shared.size).reshape(shared.shape)
    wall = CALL * shared * scatter * own
    cpu_scatter = np.exp(CPU_SCATTER * generator.normal(size=len(wall)))
    return Side(
        wall=wall,
        wait=np.zeros(wall.shape),
        cpu=wall.mean(axis=1) * cpu_scatter,
        device=None,
        load_seconds=0.0,
        first_seconds=0.0,
        peak_bytes=None,
    )


def figures_of_process(deviations: Mapping[str, float], generator: Generator) -> dict[str, Figure]:
    """Return the figures of what two equal processes have once, by their deviations."""
    figures = {}
    for name, deviation in deviations.items():
        value = math.sqrt(2) * deviation * generator.normal()
        figures[name] = Figure(1.0, math.exp(value), value, error=0.0)
    return figures
