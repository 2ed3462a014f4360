"""Two stacks against each other: pure functions from what rounds measured to a verdict on each
quantity.

docs/methodology.md explains the rule, with its sources and its limits.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pytest_mlms.records import Comparison, Verdict
from pytest_mlms.statistics import (
    Pooled,
    matched_difference,
    mcnemar,
    persistence,
    pool_rounds,
    quantile_ratio,
    ratio_of_means,
    samples_for_percentile,
    signed_rank,
    student_quantile,
)

__all__ = [
    "ACCURACY_LOSS",
    "CLOCKS",
    "LEAST_ROUNDS",
    "MOST_ROUNDS",
    "RISK_OF_FAILING",
    "RISK_OF_PASSING",
    "TOLERANCES",
    "Clock",
    "Figure",
    "Round",
    "Side",
    "available_clocks",
    "call_waits",
    "compare_accuracy",
    "compare_rounds",
    "figures_of",
    "is_decided",
    "verdict_of",
]

Array = NDArray[Any]
Clock = Literal["device", "adj", "cpu", "wall"]

CLOCKS: dict[Clock, str] = {
    "device": "time on the device, by its own events",
    "adj": "wall time less the calling thread's wait for a core",
    "cpu": "CPU time of the process",
    "wall": "wall time",
}
"""Name -> what a person is told; the first that both sides have is used."""

LEAST_ROUNDS, MOST_ROUNDS = 2, 6
ACCURACY_LOSS = 0.01  # of all answers

RISK_OF_FAILING = 0.01
"""Of calling a change at the edge of the tolerance REGRESSED, over all looks together."""

RISK_OF_PASSING = 0.05
"""Of calling a change at the edge of the tolerance PASSED, over all looks together."""

_LOOKS = MOST_ROUNDS - LEAST_ROUNDS + 1
_FOUND = 0.8  # how often the smallest detectable change is found


class Default(NamedTuple):
    """How much worse a quantity may become, as a share; how rounds of one stack scatter in it; its
    unit.

    ``sign`` is -1 where less is worse. ``base`` is added to both sides: nobody waits for what is
    small beside it.
    """

    tolerance: float
    spread: float
    unit: str = "s"
    sign: int = 1
    base: float = 0.0


TOLERANCES: dict[str, Default] = {
    "latency": Default(0.03, 0.004),
    "cpu_time": Default(0.03, 0.004),
    "wall_time": Default(0.10, 0.01),
    "latency_p90": Default(0.05, 0.008),
    "latency_p95": Default(0.08, 0.012),
    "throughput": Default(0.05, 0.008, "/s", -1),
    "first_inference": Default(0.50, 0.10, base=0.010),
    "load_time": Default(0.50, 0.10, base=0.050),
    "peak_memory": Default(0.10, 0.01, "B"),
}
"""Quantity -> its defaults.

Times and throughput are never held to less than what latency may lose.
"""


@dataclass(frozen=True, eq=False)
class Side:
    """What one process of a round gave: seconds, by pairs x calls; ``cpu`` is a call's share of its
    turn, one a pair.

    ``wait`` is None where the kernel doesn't count it, ``device`` where the predictor doesn't tell
    it, ``peak_bytes`` (of the whole process) where the kernel can't.
    """

    wall: Array
    wait: Array | None
    cpu: Array
    device: Array | None
    load_seconds: float
    first_seconds: float
    peak_bytes: int | None

    def times(self, clock: Clock) -> Array:
        """Return the seconds of each call by a clock that this side has, as pairs x calls (cpu.

        Pairs x 1).
        """
        if clock == "cpu":
            return self.cpu[:, None]
        if clock == "device" and self.device is not None:
            return self.device
        if clock == "adj" and self.wait is not None:
            return np.asarray(self.wall - self.wait)
        return self.wall


class Round(NamedTuple):
    """A fresh process of each side, A the baseline and B the candidate, and what they gave in
    turns.
    """

    a: Side
    b: Side


class Figure(NamedTuple):
    """A quantity in one round.

    Both values, the log of B over A, its standard error, and the calls that it rests on.
    """

    a: float
    b: float
    value: float
    error: float
    calls: int = 0


def call_waits(start: Array, end: Array, wait: Array, at: Array) -> Array:
    """Return the seconds that each call waited for a core, from the counter as it stood when ``at``
    calls were done.

    Where several calls are between two readings, the longest has it: a wait makes a call longer by
    itself. A wait that is longer than the call was outside of it.
    """
    took, waits = end - start, np.zeros(len(start))
    for first, last, waited in zip(
        at[:-1].astype(int), at[1:].astype(int), np.diff(wait), strict=True
    ):
        longest = first + int(np.argmax(took[first:last]))
        waits[longest] = waited if waited < took[longest] else 0.0
    return waits


def available_clocks(one: Round) -> list[Clock]:
    """Return the clocks that both sides have, the one that disturbances touch least first."""
    lacking = {"device" for side in one if side.device is None} | {
        "adj" for side in one if side.wait is None
    }
    return [clock for clock in CLOCKS if clock not in lacking]


def figures_of(one: Round, clock: Clock, batch_size: int) -> dict[str, Figure]:
    """Return the quantities of a round by name.

    A process's own quantities carry no error: rounds are their samples.
    """
    a, b = one.a.times(clock), one.b.times(clock)
    found = {"latency": _centre(a, b), "cpu_time": _centre(one.a.times("cpu"), one.b.times("cpu"))}
    found["wall_time"] = _centre(one.a.wall, one.b.wall)
    if clock == "cpu":
        a, b = one.a.wall, one.b.wall  # CPU time is known for a turn, and a tail is one of calls
    if min(a.min(), b.min()) > 0:
        found.update(_of_all_calls(a, b, batch_size))
    for field, name in _OF_PROCESS.items():
        ends = getattr(one.a, field), getattr(one.b, field)
        if all(ends):
            base = TOLERANCES[name].base
            value = math.log((ends[1] + base) / (ends[0] + base))
            found[name] = Figure(float(ends[0]), float(ends[1]), value, 0.0)
    return found


def _of_all_calls(a: Array, b: Array, batch_size: int) -> dict[str, Figure]:
    found = {}
    for percent in (90, 95):
        first, second = (float(np.percentile(side, percent)) for side in (a, b))
        found[f"latency_p{percent}"] = Figure(first, second, *quantile_ratio(b, a, percent), a.size)
    first, second = (batch_size / float(side.mean()) for side in (a, b))
    found["throughput"] = Figure(
        first, second, *ratio_of_means(a.mean(axis=1), b.mean(axis=1)), a.size
    )
    return found


_OF_PROCESS = {
    "first_seconds": "first_inference",
    "load_seconds": "load_time",
    "peak_bytes": "peak_memory",
}


def _centre(a: Array, b: Array) -> Figure:
    """The centre of log(B / A) over the pairs, a turn being worth its median call."""
    first, second = np.median(a, axis=1), np.median(b, axis=1)
    if min(first.min(), second.min()) <= 0:  # this clock stands still between two readings
        return Figure(float(first.mean()), float(second.mean()), 0.0, math.inf, a.size)
    ratios = np.log(second / first)
    centre, low, high = signed_rank(ratios)
    error = (
        (high - low) / 3.92 * persistence(ratios)
    )  # a 95 % interval is 3.92 standard errors wide
    return Figure(float(np.median(a)), float(np.median(b)), centre, error, a.size)


def compare_rounds(
    rounds: Sequence[Mapping[str, Figure]],
    tolerances: Mapping[str, float],
    gates: Iterable[str] = ("latency",),
) -> list[Comparison]:
    """Return the verdict on each quantity after these rounds; ``tolerances`` are instead of the
    defaults.

    The risks are shared between all looks that there may be (Bonferroni), so the rule is the same
    at every look and can be applied again, later, with other tolerances.
    """
    found = []
    for name, default in TOLERANCES.items():
        figures = [one[name] for one in rounds if name in one]
        least = tolerances.get("latency", 0.0) if default.unit != "B" else 0.0
        tolerance = tolerances.get(name, max(default.tolerance, least))
        if figures:
            found.append(_compare(name, figures, tolerance, name in gates))
    return found


def _compare(name: str, figures: Sequence[Figure], tolerance: float, gate: bool) -> Comparison:
    sign, limit = TOLERANCES[name].sign, math.log1p(tolerance)
    pooled = pool_rounds(
        [sign * one.value for one in figures],
        [one.error for one in figures],
        TOLERANCES[name].spread,
    )
    a, b = (float(np.median([one[side] for one in figures])) for side in (0, 1))
    lacking = _lacking(name, figures, pooled)
    made = Comparison(
        name, a, b, TOLERANCES[name].unit, tolerance, gate, len(figures), "rounds", lacking
    )
    if pooled is None:
        return made
    low, high = pooled.below(RISK_OF_FAILING / _LOOKS), pooled.above(RISK_OF_PASSING / _LOOKS)
    half = pooled.mean - low
    ends = sorted(math.exp(sign * value) for value in (low, pooled.mean, high))
    return made.but(
        low=ends[0],
        ratio=ends[1],
        high=ends[2],
        verdict=Verdict.INCONCLUSIVE if lacking else _decide(low, high, limit),
        floor=math.expm1(half),
        detectable=math.expm1(
            limit + half + student_quantile(pooled.freedom, _FOUND) * pooled.error
        ),
    )


def _decide(low: float, high: float, limit: float) -> Verdict:
    """Return what an interval of the log of how much worse B is says.

    All above the limit, below it, or neither.
    """
    if low > limit:
        return Verdict.REGRESSED
    if high < -limit:
        return Verdict.IMPROVED
    return Verdict.PASSED if high < limit else Verdict.INCONCLUSIVE


def _lacking(name: str, figures: Sequence[Figure], pooled: Pooled | None) -> str:
    needed = samples_for_percentile(float(name[-2:])) if name.startswith("latency_p") else 0
    fewest = min(one.calls for one in figures)
    if fewest < needed:
        return f"needs {needed} calls a round, had {fewest}"
    if pooled is None:
        return "too few pairs, or a clock that stands still between two readings"
    known = sum(math.isfinite(one.error) for one in figures)
    return f"needs {LEAST_ROUNDS} rounds, had {known}" if known < LEAST_ROUNDS else ""


def compare_accuracy(
    right_a: Array, right_b: Array, k: int, tolerance: float, gate: bool
) -> Comparison:
    """Return the verdict on the share of right answers, from whether each side had each input
    right.

    REGRESSED where so many losses against gains are less likely than 1 % (McNemar) and they are
    more than the tolerance; PASSED where none was lost or the interval of the difference (Agresti
    and Min) is above -tolerance.
    """
    count, lost, won = (
        len(right_a),
        int((right_a & ~right_b).sum()),
        int((right_b & ~right_a).sum()),
    )
    low, high = matched_difference(lost, won, count, 1 - 2 * RISK_OF_PASSING)
    a, b = (float(side.mean()) for side in (right_a, right_b))
    verdict = Verdict.INCONCLUSIVE
    if mcnemar(lost, won) < RISK_OF_FAILING and lost - won > tolerance * count:
        verdict = Verdict.REGRESSED
    elif lost == 0 or low > -tolerance:
        verdict = Verdict.PASSED
    made = Comparison(f"top{k}", a, b, "fraction", tolerance, gate, count, "inputs")
    return made.but(ratio=b - a, low=low, high=high, verdict=verdict)


def is_decided(comparisons: Sequence[Comparison], rounds: int) -> bool:
    """Return whether another round can change nothing that counts.

    All gates are decided, or the outputs are wrong.
    """
    if any(one.verdict is Verdict.REGRESSED and one.of != "rounds" for one in comparisons):
        return True
    opened = [
        one
        for one in comparisons
        if one.gate and one.verdict is Verdict.INCONCLUSIVE and one.of == "rounds"
    ]
    return rounds >= LEAST_ROUNDS and not opened


def verdict_of(comparisons: Sequence[Comparison]) -> Verdict:
    """Return the item's verdict: what is surely worse fails it; every gate must be decided.

    Then latency's own.
    """
    verdicts = {one.verdict for one in comparisons}
    gates = {one.verdict for one in comparisons if one.gate}
    if Verdict.REGRESSED in verdicts:
        return Verdict.REGRESSED
    if Verdict.INCONCLUSIVE in gates or not gates:
        return Verdict.INCONCLUSIVE
    latency = [one.verdict for one in comparisons if one.quantity == "latency"]
    return latency[0] if latency else Verdict.PASSED
