"""Simulated rounds for ``ci/gate_study --simulate``: the times of calls by kinds of noise.

Calls of 1 ms scatter by 5 %, in turns of two as the gate makes them of such calls. One thing varies
beside that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.signal import lfilter

from pytest_mlms.upgrade.figures import Figure, figures_of, slow_calls
from pytest_mlms.upgrade.interleave_plan import LEAST_SECONDS, next_look
from pytest_mlms.upgrade.round_inputs import RoundInputs
from pytest_mlms.upgrade.rounds import Round, Side

__all__ = [
    "NOISES",
    "OF_CALLS",
    "OF_PROCESS",
    "PAIR",
    "UNLIKE_NOISES",
    "Array",
    "Generator",
    "Kind",
    "Look",
    "Noise",
    "figures_of_process",
    "simulated_looks",
]

Array: TypeAlias = NDArray[Any]
Generator: TypeAlias = np.random.Generator
Factors: TypeAlias = Callable[[Generator, int], Array]
"""Factors of so many calls in their order."""

CALL = 1e-3  # seconds
CALLS = 2  # of a turn
SCATTER = 0.05
STEADY = 0.01  # of short calls by a coarse clock
TURN = 2e-3  # seconds, of calls that are shorter
PAIR = 4e-3  # seconds of a pair of turns
LEAST_PAIRS = round(LEAST_SECONDS / PAIR)
CPU_SCATTER = 0.02
BURST_CALLS = 50
BURST_SHARE = 0.1
DRIFT = 0.02
DRIFT_CALLS = 500
SLOW_CALL = 1.5

OF_CALLS = ("latency", "cpu_time", "wall_time", "latency_p90", "latency_p95", "throughput")
"""Quantities that follow the calls of a round."""

OF_PROCESS = {
    "start_time": 0.10,
    "load_time": 0.20,
    "first_inference": 0.20,
    "peak_memory": 0.02,
    "energy_per_input": 0.05,
}
"""Quantity that a process has once -> its standard deviation between processes, as a share.

One in twelve starts, loads and first inferences takes 1.4 times as long, as from a cold disk.
"""
MEMORY = 256.0 * 2**20
SLOW_STARTS = 1 / 12
SLOW_START = 1.4
OF_START = ("start_time", "load_time", "first_inference")


def _ones(generator: Generator, count: int) -> Array:
    return np.ones(count)


class Kind(NamedTuple):
    """A share of the processes of a side, which takes so many times as long as the others."""

    share: float = 0.0
    times: float = 1.0

    @property
    def mean(self) -> float:
        """The mean over processes of the log of the factor."""
        return self.share * math.log(self.times)

    def draw(self, generator: Generator, shape: tuple[int, ...]) -> Array:
        """Return the logs of the factors of processes."""
        return np.where(generator.random(shape) < self.share, math.log(self.times), 0.0)


ONE_KIND = Kind()


@dataclass(frozen=True)
class Noise:
    """A kind of noise.

    ``shared`` has the factors of all calls of a round in their order, whichever side makes them,
    and ``own`` those of the calls of one process. Processes differ by ``offset``, a standard
    deviation. ``a`` and ``b`` are the slow processes of each side, and ``skew_a`` and ``skew_b``
    the mean of what a process takes longer by chance, distributed exponentially. The side that is
    started first is slower by ``first``, a share. A clock advances by steps of ``step`` seconds,
    and calls take ``call`` seconds.
    """

    name: str
    shared: Factors = _ones
    own: Factors = _ones
    offset: float = 0.0
    a: Kind = ONE_KIND
    b: Kind = ONE_KIND
    skew_a: float = 0.0
    skew_b: float = 0.0
    first: float = 0.0
    step: float = 0.0
    call: float = CALL

    @property
    def mean(self) -> float:
        """The mean of log(B / A) over processes."""
        return self.b.mean - self.a.mean + self.skew_b - self.skew_a

    def log_ratios(self, generator: Generator, orders: Array) -> Array:
        """Return log(B / A) of the processes of rounds, beside the noise of their calls.

        ``orders`` are 1 where B was started first, else -1.
        """
        shape = orders.shape
        a, b = self.offset * generator.normal(size=(2, *shape))
        skew = self.skew_b * generator.exponential(size=shape)
        skew = skew - self.skew_a * generator.exponential(size=shape)
        kinds = self.b.draw(generator, shape) - self.a.draw(generator, shape)
        return np.asarray(b - a + kinds + skew + math.log1p(self.first) * orders)


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
    Noise("one process in 12 at 1.4", offset=0.003, a=Kind(1 / 12, 1.4), b=Kind(1 / 12, 1.4)),
)

UNLIKE_NOISES: Sequence[Noise] = (
    Noise("none", offset=0.002),
    Noise("both by a coin x 1.2", offset=0.002, a=Kind(0.5, 1.2), b=Kind(0.5, 1.2)),
    Noise("both exponential, 2 %", offset=0.002, skew_a=0.02, skew_b=0.02),
    Noise("both one in ten x 1.4", offset=0.002, a=Kind(0.1, 1.4), b=Kind(0.1, 1.4)),
    Noise("B by a coin x 1.2", offset=0.002, b=Kind(0.5, 1.2)),
    Noise("B by a coin x 1.06", offset=0.002, b=Kind(0.5, 1.06)),
    Noise("A by a coin x 1.06", offset=0.002, a=Kind(0.5, 1.06)),
    Noise("x 1.1, A 0.1, B 0.4", offset=0.002, a=Kind(0.1, 1.1), b=Kind(0.4, 1.1)),
    Noise("B in 0.4 x 1.1", offset=0.002, b=Kind(0.4, 1.1)),
    Noise("B in 0.25 x 1.2", offset=0.002, b=Kind(0.25, 1.2)),
    Noise("B in 0.1 x 1.4", offset=0.002, b=Kind(0.1, 1.4)),
    Noise("B exponential, 2 %", offset=0.002, skew_b=0.02),
    Noise("A exponential, 2 %", offset=0.002, skew_a=0.02),
    Noise("first side + 1.5 %", offset=0.002, first=0.015),
    Noise("20.3 µs, clock of 1 µs", offset=0.002, step=1e-6, call=20.3e-6),
    Noise("20.3 µs, clock of 0.5 µs", offset=0.002, step=0.5e-6, call=20.3e-6),
)
"""Noises that the two sides may not share, beside some that they do."""


class Look(NamedTuple):
    """The figures of a round after so many pairs of turns, and how many calls were slow by side."""

    pairs: int
    figures: dict[str, Figure]
    slow: tuple[int, int]


def simulated_looks(
    noise: Noise, most: int, generator: Generator, change: float = 0.0
) -> list[Look]:
    """Return a round as it is after 20 pairs and more, by the functions that compute real ones.

    B takes exp(``change``) times as long as A, without the processes' offsets. What a process has
    once is left out.
    """
    order = generator.integers(2, size=most)
    rows = np.arange(most)
    calls = CALLS if noise.call == CALL else round(TURN / noise.call)
    shared = noise.shared(generator, 2 * calls * most).reshape(most, 2, calls)
    a = _simulated_side(noise, shared[rows, order], generator)
    b = _simulated_side(noise, math.exp(change) * shared[rows, 1 - order], generator)
    looks = []
    pairs = 0
    while pairs < most:
        pairs = min(most, max(LEAST_PAIRS, next_look(pairs, calls)))
        measured = Round(_first(a, pairs), _first(b, pairs))
        figures = figures_of(measured, "adj", batch_size=1)
        kept = {name: figures[name] for name in OF_CALLS if name in figures}
        inputs = RoundInputs(np.zeros((pairs, calls), int), np.zeros(1, int))
        looks.append(Look(pairs, kept, slow_calls(measured, inputs)))
    return looks


def _first(side: Side, pairs: int) -> Side:
    """Return the first turns of a side."""
    return replace(
        side, wall=side.wall[:pairs], wait=np.zeros(side.wall[:pairs].shape), cpu=side.cpu[:pairs]
    )


def _simulated_side(noise: Noise, shared: Array, generator: Generator) -> Side:
    scatter = np.exp((SCATTER if noise.step == 0 else STEADY) * generator.normal(size=shared.shape))
    own = noise.own(generator, shared.size).reshape(shared.shape)
    wall = noise.call * shared * scatter * own
    if noise.step:
        ends = np.cumsum(wall, axis=1) + generator.uniform(0, noise.step, (len(wall), 1))
        wall = noise.step * np.diff(np.floor(ends / noise.step), axis=1, prepend=0)
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
        if name in OF_START:
            slow_a, slow_b = generator.random(2) < SLOW_STARTS
            value += math.log(SLOW_START) * (int(slow_b) - int(slow_a))
        a = MEMORY if name == "peak_memory" else 1.0
        figures[name] = Figure(a, a * math.exp(value), value, error=0.0)
    return figures
