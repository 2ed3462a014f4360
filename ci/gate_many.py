"""Many decisions on latency at once, for ``ci/gate_study --simulate --unlike``.

The rule is that of ``pytest_mlms.upgrade.round_estimate``, over arrays; a test holds both equal.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from gate_noise import Array, Generator, Noise, simulated_looks

from pytest_mlms.statistics import student_quantile
from pytest_mlms.upgrade.interleave_plan import InterleavePlan
from pytest_mlms.upgrade.round_estimate import RoundSpan

__all__ = ["Decided", "Library", "decide_many", "ends_of", "simulate_many"]

LIMIT = math.log(1.03)
ROUNDS_FOR_ORDER = 4
ROUNDS_TO_TRIM = 10


class Decided(NamedTuple):
    """Of many items: which regressed, which passed, after how many rounds and pairs of turns."""

    regressed: Array
    passed: Array
    rounds: Array
    pairs: Array


@dataclass(frozen=True, eq=False)
class Library:
    """Simulated rounds of a noise: the change of latency and its error, rounds x looks."""

    noise: Noise
    pairs: Array
    values: Array
    errors: Array
    change: float = 0.0

    @classmethod
    def of(cls, noise: Noise, count: int, most: int, generator: Generator) -> Library:
        """Simulate rounds of up to ``most`` pairs, without an effect."""
        rounds = [simulated_looks(noise, most, generator) for _ in range(count)]
        figures = [[look.figures["latency"] for look in looks] for looks in rounds]
        return cls(
            noise,
            np.array([look.pairs for look in rounds[0]]),
            np.array([[figure.value for figure in looks] for looks in figures]),
            np.array([[figure.error for figure in looks] for looks in figures]),
        )

    def with_change(self, change: float, most: int, generator: Generator) -> Library:
        """Return the library with an effect; a coarse clock makes steps of it."""
        if not self.noise.step:
            return replace(self, values=self.values + change, change=change)
        rounds = [simulated_looks(self.noise, most, generator, change) for _ in self.values]
        values = [[look.figures["latency"].value for look in looks] for looks in rounds]
        return replace(self, values=np.array(values))

    def drawn(self, rows: Array, looks: Array, generator: Generator) -> Array:
        """Return the changes of these rounds; by a fine clock either side of them may be B."""
        found = self.values[rows, looks]
        if self.noise.step:
            return np.asarray(found)
        return np.asarray(
            self.change + (found - self.change) * generator.choice([-1, 1], len(rows))
        )


def simulate_many(
    library: Library, plan: InterleavePlan, pair: float, count: int, generator: Generator
) -> Decided:
    """Decide on ``count`` items, whose rounds are drawn from the library and end as real ones."""
    most = plan.rounds.most
    first = generator.integers(2, size=(count, most)) * 2 - 1
    first[:, 1::2] = -first[:, : most - most % 2 : 2]
    values = np.zeros((count, most))
    pairs = np.zeros((count, most), int)
    offsets = library.noise.log_ratios(generator, first) - library.noise.mean
    for number in range(most):
        of_round = plan.for_round(number * [0.0])
        needed = np.full(count, plan.precision)
        if number > 2:
            needed = np.maximum(needed, values[:, :number].std(axis=1, ddof=1) / 3)
        drawn = generator.integers(len(library.values), size=count)
        is_end = library.errors[drawn] <= needed[:, None]
        is_end |= library.pairs >= of_round.seconds / pair
        look = is_end.argmax(axis=1)
        values[:, number] = library.drawn(drawn, look, generator) + offsets[:, number]
        pairs[:, number] = library.pairs[look]
    orders = first if library.noise.first else np.zeros((count, most), int)
    return decide_many(values, orders, plan.rounds, pairs)


def decide_many(values: Array, orders: Array, span: RoundSpan, pairs: Array) -> Decided:
    """Decide on items, a row each, after each of their rounds until they are decided."""
    count = len(values)
    regressed = np.zeros(count, bool)
    passed = np.zeros(count, bool)
    rounds = np.full(count, span.most)
    for number in range(span.least, span.most + 1):
        low, high = ends_of(values[:, :number], orders[:, :number], span)
        is_open = ~(regressed | passed)
        now_regressed = is_open & (low > LIMIT) & (number >= span.to_fail)
        now_passed = is_open & (high < LIMIT)
        rounds[now_regressed | now_passed] = number
        regressed |= now_regressed
        passed |= now_passed
    spent = np.where(np.arange(span.most) < rounds[:, None], pairs, 0).sum(axis=1)
    return Decided(regressed, passed, rounds, spent)


def ends_of(values: Array, orders: Array, span: RoundSpan) -> tuple[Array, Array]:
    """Return both ends of the interval of each row's mean."""
    count = values.shape[1]
    freedom = count - 1
    spread = 1 / count
    if count >= ROUNDS_FOR_ORDER and orders.any():
        centred = orders - orders.mean(axis=1, keepdims=True)
        squares = (centred**2).sum(axis=1)
        slope = (centred * values).sum(axis=1) / squares
        values = values - slope[:, None] * orders
        freedom -= 1
        spread = spread + orders.mean(axis=1) ** 2 / squares
    mean = values.mean(axis=1)
    left = ((values - mean[:, None]) ** 2).sum(axis=1)
    error = np.sqrt(left / freedom * spread)
    low = mean - student_quantile(freedom, 1 - span.risk_of_failing) * error
    high = mean + student_quantile(freedom, 1 - span.risk_of_passing) * error
    if count < ROUNDS_TO_TRIM:
        return low, high
    return _trimmed_ends(values, freedom, span, low, high)


def _trimmed_ends(
    values: Array, freedom: int, span: RoundSpan, low: Array, high: Array
) -> tuple[Array, Array]:
    count = values.shape[1]
    trimmed = count // 5
    ordered = np.sort(values, axis=1)
    kept = ordered[:, trimmed : count - trimmed]
    least, most = kept[:, :1], kept[:, -1:]
    winsorized = np.clip(ordered, least, most)
    squares = ((winsorized - winsorized.mean(axis=1, keepdims=True)) ** 2).sum(axis=1)
    error = np.sqrt(squares / kept.shape[1] / (kept.shape[1] - 1))
    mean = kept.mean(axis=1)
    freedom -= 2 * trimmed
    above = (ordered > 2 * most - least).sum(axis=1)
    below = (ordered < 2 * least - most).sum(axis=1)
    robust_low = mean - student_quantile(freedom, 1 - span.risk_of_failing / 2) * error
    robust_high = mean + student_quantile(freedom, 1 - span.risk_of_passing / 2) * error
    low = np.where(below <= above, np.maximum(low, robust_low), low)
    high = np.where(above <= below, np.minimum(high, robust_high), high)
    return low, high
