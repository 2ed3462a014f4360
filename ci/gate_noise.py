"""Simulated rounds for ``ci/gate_study --simulate``: the times of calls by kinds of noise.

Calls of 1 ms scatter by 5 %, and one thing varies beside that. Turns are as the gate makes them of
such calls, and a round ends by its rule.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.signal import lfilter

from pytest_mlms.decide.upgrade.agents import TurnPlan
from pytest_mlms.decide.upgrade.criteria import (
    SHARE_OF_DURATION,
    Criteria,
    least_calls,
    precision_of,
)
from pytest_mlms.decide.upgrade.figures import (
    Figure,
    centre_of,
    figures_of,
    seconds_of_turns,
    slow_calls,
)
from pytest_mlms.decide.upgrade.interleave import LEAST_SKIPPED, WINDOW_PAIRS, calls_of_turn
from pytest_mlms.decide.upgrade.interleave_plan import LEAST_SECONDS, InterleavePlan, TurnWatch
from pytest_mlms.decide.upgrade.rounds import Round, RoundInputs, Side
from pytest_mlms.options import OPTIONS

__all__ = [
    "BESIDE",
    "NOISES",
    "OF_CALLS",
    "OF_PROCESS",
    "TURNS",
    "UNLIKE_NOISES",
    "Array",
    "EqualRound",
    "Generator",
    "Kind",
    "Look",
    "Noise",
    "figures_of_process",
    "pairs_at_end",
    "plan_of",
]

Array: TypeAlias = NDArray[Any]
Generator: TypeAlias = np.random.Generator
Factors: TypeAlias = Callable[[Generator, int], Array]
"""Factors of so many calls in their order."""

DEFAULTS = {option.name: option.default for option in OPTIONS}
TURNS: float = SHARE_OF_DURATION * DEFAULTS["duration"]
"""Seconds that the turns of a round take at most."""

CALL = 1e-3  # seconds
SCATTER = 0.05
STEADY = 0.01  # of short calls by a coarse clock
FASTER = 1.25  # times the pairs of a round that noise may add
CPU_SCATTER = 0.02
BURST_CALLS = 50
BURST_SHARE = 0.1
DRIFT = 0.02
DRIFT_CALLS = 500
SLOW_CALL = 1.5

OF_CALLS = ("latency", "cpu_time", "wall_time", "latency_p90", "latency_p95", "throughput")
"""Quantities that follow the calls of a round."""

BESIDE = ("warm_up_time", "stalls")
"""Quantities of calls beside these, which no candidate of a simulation changes."""

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


def plan_of(criteria: Criteria) -> InterleavePlan:
    """Return the plan of an item, with the defaults of the command line."""
    return InterleavePlan(
        TURNS,
        DEFAULTS["budget"],
        seed=0,
        rounds=criteria.rounds,
        precision=precision_of(criteria),
        least_calls=least_calls(criteria),
    )


def pairs_at_end(
    plan: InterleavePlan,
    spent: Array,
    error: Callable[[int], float],
    calls: int,
    batches: int = 1,
) -> int:
    """Return after how many pairs of turns, of so many ``calls``, a round ends as real ones do.

    ``spent`` are the seconds after 0, 1, 2… pairs, and ``error`` returns that of so many.
    """
    watch = TurnWatch(plan, calls, batches)
    least = min(LEAST_SECONDS, plan.seconds, plan.longest_turns)  # no round ends before
    pairs = int(np.searchsorted(spent, least))

    def error_now() -> float:
        return error(pairs)

    while not watch.is_enough(pairs, spent[pairs], error_now):
        pairs += 1
    return pairs


class Look(NamedTuple):
    """A round after some pairs of turns: its figures, and what it hands on to later rounds.

    ``change`` is the median of log(B / A), and ``slow`` how many calls were slow by side.
    """

    figures: dict[str, Figure]
    change: float
    slow: tuple[int, int]


class EqualRound:
    """A simulated round of equal sides, whose figures are computed as those of real ones.

    B takes exp(``change``) times as long as A, without the processes' offsets. What a process has
    once is left out.
    """

    def __init__(self, noise: Noise, generator: Generator, change: float = 0.0) -> None:
        turns = TurnPlan(calls_of_turn(noise.call), LEAST_SKIPPED)
        count = turns.skip + turns.count
        most = math.ceil(FASTER * TURNS / (2 * count * noise.call))
        order = generator.integers(2, size=most)
        rows = np.arange(most)
        shared = noise.shared(generator, 2 * count * most).reshape(most, 2, count)
        windows = noise.shared(generator, 4 * WINDOW_PAIRS).reshape(-1, 2)
        a = _times(noise, shared[rows, order], generator)
        b = _times(noise, math.exp(change) * shared[rows, 1 - order], generator)
        self._calls = turns.count
        self._spent = np.concatenate([[0.0], np.cumsum((a + b).sum(axis=1))])
        self._a, self._b = (
            _side(noise, times[:, turns.skip :], _times(noise, warm_up, generator), generator)
            for times, warm_up in ((a, windows[:, 0]), (b, windows[:, 1]))
        )
        self._errors: dict[int, float] = {}
        self._looks: dict[int, Look] = {}

    def end(self, plan: InterleavePlan, longer: float = 1.0) -> tuple[Look, float, float]:
        """Return the round as it ends by a plan, its seconds, and those of a call of both sides.

        These are ``longer`` by a factor than the calls that were simulated.
        """
        spent = longer * self._spent
        pairs = pairs_at_end(plan, spent, self._error, self._calls)
        if pairs not in self._looks:
            self._looks[pairs] = self._look(pairs)
        seconds = float(spent[pairs])
        return self._looks[pairs], seconds, seconds / (pairs * self._calls)

    def _error(self, pairs: int) -> float:
        if pairs not in self._errors:
            self._errors[pairs] = centre_of(self._ratios(pairs))[1]
        return self._errors[pairs]

    def _ratios(self, pairs: int) -> Array:
        a, b = seconds_of_turns(self._a.wall[:pairs], self._b.wall[:pairs])
        return np.asarray(np.log(b / a))

    def _look(self, pairs: int) -> Look:
        measured = Round(_first(self._a, pairs), _first(self._b, pairs))
        figures = figures_of(measured, "adj", batch_size=1)
        kept = {name: figures[name] for name in (*OF_CALLS, *BESIDE) if name in figures}
        inputs = RoundInputs(np.zeros((pairs, self._calls), int), np.zeros(1, int))
        change = float(np.median(self._ratios(pairs)))
        return Look(kept, change, slow_calls(measured, inputs))


def _times(noise: Noise, shared: Array, generator: Generator) -> Array:
    """Return the seconds of calls of a side, given what both sides share."""
    scatter = np.exp((SCATTER if noise.step == 0 else STEADY) * generator.normal(size=shared.shape))
    own = noise.own(generator, shared.size).reshape(shared.shape)
    return np.asarray(noise.call * shared * scatter * own)


def _side(noise: Noise, wall: Array, warm_up: Array, generator: Generator) -> Side:
    """Return a side as its clock shows the calls that are timed, after those of a warm-up."""
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
        warm_up_seconds=float(warm_up.sum()),
    )


def _first(side: Side, pairs: int) -> Side:
    """Return the first turns of a side."""
    return replace(
        side, wall=side.wall[:pairs], wait=np.zeros(side.wall[:pairs].shape), cpu=side.cpu[:pairs]
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
