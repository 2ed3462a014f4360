"""The decision rule of an upgrade: verdicts on quantities, from the figures of rounds.

All functions are pure. docs/methodology.md explains the rule, its sources and its limits.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import NamedTuple

from pytest_mlms.quantities import QUANTITIES, Quantity, upgrade_rules
from pytest_mlms.records import Comparison, Verdict
from pytest_mlms.statistics import (
    Pooled,
    largest_loss,
    pool_rounds,
    samples_for_percentile,
    student_quantile,
)
from pytest_mlms.upgrade.figures import Figure
from pytest_mlms.upgrade.rounds import Array

__all__ = [
    "LEAST_ROUNDS",
    "MOST_ROUNDS",
    "RISK_OF_FAILING",
    "RISK_OF_PASSING",
    "compare_accuracy",
    "compare_rounds",
    "is_decided",
    "verdict_of",
    "verdict_of_interval",
]

LEAST_ROUNDS = 2
MOST_ROUNDS = 6

RISK_OF_FAILING = 0.01
"""Of calling a change at the edge of the tolerance REGRESSED, over all looks together."""

RISK_OF_PASSING = 0.05
"""Of calling a change at the edge of the tolerance PASSED, over all looks together."""

_BOUND_OF_FAILING = 0.004
_BOUND_OF_PASSING = 0.04
"""Risks of the bounds of accuracy. Counts are whole, so that the real risks are up to 1 and 5 %."""

_LOOKS = MOST_ROUNDS - LEAST_ROUNDS + 1
_POWER = 0.8  # probability that the smallest detectable change is found


def compare_rounds(
    rounds: Sequence[Mapping[str, Figure]],
    tolerances: Mapping[str, float],
    gates: Iterable[str] = ("latency",),
) -> list[Comparison]:
    """Return the verdict on each quantity after these rounds.

    ``tolerances`` override the defaults. The risks are shared between all looks that there may be
    (Bonferroni). The rule is therefore the same at every look, and can be applied again later with
    other tolerances.
    """
    of_latency = _tolerance_of_latency(rounds, tolerances)
    comparisons = []
    for name in upgrade_rules():
        figures = [figures[name] for figures in rounds if name in figures]
        if figures:
            tolerance = _tolerance_of(name, tolerances, of_latency)
            comparisons.append(_compare(name, figures, tolerance, name in gates))
    return comparisons


class _Tolerance(NamedTuple):
    """A tolerance as a share, and the seconds that it stands for where these decided it."""

    share: float
    least_change: float = 0.0


def _tolerance_of_latency(
    rounds: Sequence[Mapping[str, Figure]], tolerances: Mapping[str, float]
) -> _Tolerance:
    """Return the tolerance of latency: at least the least change that is judged."""
    rule = upgrade_rules()["latency"]
    share = tolerances.get("latency", rule.tolerance)
    values = [figures["latency"].a for figures in rounds if "latency" in figures]
    baseline = median(values) if values else 0.0
    if baseline * share >= rule.least_change or not baseline:
        return _Tolerance(share)
    return _Tolerance(rule.least_change / baseline, rule.least_change)


def _tolerance_of(name: str, tolerances: Mapping[str, float], of_latency: _Tolerance) -> _Tolerance:
    """Return the tolerance of a quantity: that of ``tolerances``, else the default.

    Times and throughput have at least the tolerance of latency, unless they are named.
    """
    if name == "latency":
        return of_latency
    if name in tolerances:
        return _Tolerance(tolerances[name])
    default = _Tolerance(upgrade_rules()[name].tolerance)
    if QUANTITIES[name].unit == "B":
        return default
    return max(default, of_latency)


def _compare(name: str, figures: Sequence[Figure], tolerance: _Tolerance, gate: bool) -> Comparison:
    quantity = QUANTITIES[name]
    changes = [quantity.sign * figure.value for figure in figures]
    errors = [figure.error for figure in figures]
    pooled = pool_rounds(changes, errors, upgrade_rules()[name].spread)
    values_a = [figure.a for figure in figures]
    values_b = [figure.b for figure in figures]
    undecided = Comparison(
        quantity=name,
        a=median(values_a),
        b=median(values_b),
        unit=quantity.unit,
        tolerance=tolerance.share,
        least_change=tolerance.least_change,
        gate=gate,
        replicates=len(figures),
        of="rounds",
        lacking=_missing(quantity, figures, pooled),
    )
    if pooled is None:
        return undecided
    return _decide(undecided, pooled, quantity.sign)


def _decide(undecided: Comparison, pooled: Pooled, sign: int) -> Comparison:
    """Return the comparison with its interval, and the verdict that follows from it.

    ``pooled`` is the log of how much worse B is; a ``sign`` of -1 turns it into the log of B / A.
    """
    limit = math.log1p(undecided.tolerance)
    low = pooled.below(RISK_OF_FAILING / _LOOKS)
    high = pooled.above(RISK_OF_PASSING / _LOOKS)
    verdict = verdict_of_interval(low, high, limit)
    if undecided.lacking:
        verdict = Verdict.INCONCLUSIVE
    margin = pooled.mean - low
    power_margin = student_quantile(pooled.freedom, _POWER) * pooled.error
    ends = [math.exp(sign * low), math.exp(sign * high)]
    return undecided.but(
        low=min(ends),
        ratio=math.exp(sign * pooled.mean),
        high=max(ends),
        verdict=verdict,
        floor=math.expm1(margin),
        detectable=math.expm1(limit + margin + power_margin),
    )


def verdict_of_interval(low: float, high: float, limit: float) -> Verdict:
    """Decide by an interval of the log of how much worse B is, and the limit of that."""
    if low > limit:
        return Verdict.REGRESSED
    if high < -limit:
        return Verdict.IMPROVED
    if high < limit:
        return Verdict.PASSED
    return Verdict.INCONCLUSIVE


def _missing(quantity: Quantity, figures: Sequence[Figure], pooled: Pooled | None) -> str:
    """Return what a decision lacks, "" where nothing is missing."""
    if quantity.percent is not None:
        needed = samples_for_percentile(quantity.percent)
        fewest = min(figure.calls for figure in figures)
        if fewest < needed:
            return f"needs {needed} calls a round, had {fewest}"
    if pooled is None:
        return "too few pairs, or a clock that stands still between two readings"
    usable = sum(math.isfinite(figure.error) for figure in figures)
    if usable < LEAST_ROUNDS:
        return f"needs {LEAST_ROUNDS} rounds, had {usable}"
    return ""


def compare_accuracy(name: str, right_a: Array, right_b: Array, tolerance: float) -> Comparison:
    """Return the verdict on "top1" or "top5", given for each input whether each side is right.

    REGRESSED where surely more than ``tolerance`` of all inputs were lost, PASSED where surely
    less: by the bounds of the difference of shares. A tolerance of 0 is about these very inputs: it
    is PASSED where none of them was lost.
    """
    count = len(right_a)
    lost = int((right_a & ~right_b).sum())
    won = int((right_b & ~right_a).sum())
    low = -largest_loss(lost, won, count, _BOUND_OF_PASSING)
    high = largest_loss(won, lost, count, _BOUND_OF_FAILING)
    verdict = Verdict.INCONCLUSIVE
    if high < -tolerance:
        verdict = Verdict.REGRESSED
    elif low > -tolerance or (lost == 0 and tolerance == 0):
        verdict = Verdict.PASSED
    share_a = float(right_a.mean())
    share_b = float(right_b.mean())
    return Comparison(
        quantity=name,
        a=share_a,
        b=share_b,
        unit="fraction",
        tolerance=tolerance,
        gate=False,
        replicates=count,
        of="inputs",
        ratio=share_b - share_a,
        low=low,
        high=high,
        verdict=verdict,
    )


def is_decided(comparisons: Sequence[Comparison], rounds: int) -> bool:
    """Return whether another round could not change the verdict.

    This is so once all gates are decided, or where the outputs are wrong.
    """
    of_rounds = [compared for compared in comparisons if compared.of == "rounds"]
    of_outputs = [compared for compared in comparisons if compared.of != "rounds"]
    if any(compared.verdict is Verdict.REGRESSED for compared in of_outputs):
        return True
    if rounds < LEAST_ROUNDS:
        return False
    gates = [compared.verdict for compared in of_rounds if compared.gate]
    return Verdict.INCONCLUSIVE not in gates


def verdict_of(comparisons: Sequence[Comparison]) -> Verdict:
    """Return the verdict of the item.

    It is REGRESSED where any quantity is, INCONCLUSIVE where a gate is or where there is no gate,
    and otherwise the verdict on latency.
    """
    if any(compared.verdict is Verdict.REGRESSED for compared in comparisons):
        return Verdict.REGRESSED
    gates = {compared.verdict for compared in comparisons if compared.gate}
    if not gates or Verdict.INCONCLUSIVE in gates:
        return Verdict.INCONCLUSIVE
    for compared in comparisons:
        if compared.quantity == "latency":
            return compared.verdict
    return Verdict.PASSED
