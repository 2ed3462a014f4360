"""Limits against estimates: pure functions. The interval decides, not the value."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping, Sequence

from pytest_mlms.quantities import QUANTITIES
from pytest_mlms.records import Decision, Estimate, Limit, Verdict
from pytest_mlms.units import format_quantity

__all__ = ["decide", "explain", "judge", "margin", "worst"]

_ORDER = list(Verdict)


def judge(limits: Iterable[Limit], estimates: Mapping[str, Estimate]) -> list[Decision]:
    """Return a decision for each limit, in their order.

    A quantity that was not measured is inconclusive.
    """
    nothing = Estimate(math.nan, 0.0, math.inf, 0.95, 0, "samples", lacking="it was not measured")
    return [
        Decision(limit, estimate, decide(limit, estimate))
        for limit in limits
        for estimate in [estimates.get(limit.quantity, nothing)]
    ]


def decide(limit: Limit, estimate: Estimate) -> Verdict:
    """Return PASSED where the interval lies wholly on the right side, FAILED wholly on the wrong
    one, else neither.
    """
    if estimate.lacking:
        return Verdict.INCONCLUSIVE
    low, high = estimate.low, estimate.high
    if QUANTITIES[limit.quantity].bound == "max":
        low, high = -high, -low
    bound = limit.value if QUANTITIES[limit.quantity].bound == "min" else -limit.value
    if low >= bound:
        return Verdict.PASSED
    return Verdict.FAILED if high < bound else Verdict.INCONCLUSIVE


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the worst verdict; PASSED where there is none."""
    return min(verdicts, key=_ORDER.index, default=Verdict.PASSED)


def margin(decisions: Sequence[Decision]) -> float:
    """Return how far the worst end of an interval is inside its limit, as a share of the limit; the
    least of all.

    Negative outside, infinity where there are no limits.
    """
    margins = [math.inf]
    for decision in decisions:
        limit, estimate = decision.limit, decision.estimate
        inside = (
            estimate.low - limit.value
            if QUANTITIES[limit.quantity].bound == "min"
            else limit.value - estimate.high
        )
        margins.append(inside / limit.value if limit.value else math.copysign(math.inf, inside))
    return max(
        min(margins), -sys.float_info.max
    )  # what is infinitely far outside is a number in the results too


def explain(decision: Decision) -> str:
    """Say what was measured, its interval, the limit, and the line that set it.

    For what is open, what would help.
    """
    limit, estimate = decision.limit, decision.estimate
    quantity = QUANTITIES[limit.quantity]
    value, low, high, bound = (
        format_quantity(number, quantity.unit)
        for number in (estimate.value, estimate.low, estimate.high, limit.value)
    )
    least = "at least" if quantity.bound == "min" else "at most"
    interval = f"interval {low} to {high} ({100 * estimate.confidence:.3g} % confidence, {estimate.replicates} {estimate.of})"
    if estimate.confidence == 1:  # computed over all that there is
        interval = f"over {estimate.replicates} {estimate.of}"
    verb = {Verdict.FAILED: "is not", Verdict.PASSED: "is"}.get(decision.verdict, "may not be")
    text = f"{limit.quantity} {verb} {least} {bound}: measured {value}, {interval}\n  limit set by {limit.place}"
    return text + (f"\n  {_advice(decision)}" if decision.verdict is Verdict.INCONCLUSIVE else "")


def _advice(decision: Decision) -> str:
    if decision.estimate.lacking:
        return f"undecided: {decision.estimate.lacking}"
    if QUANTITIES[decision.limit.quantity].kind != "performance":
        return "undecided: the limit is inside the interval; a larger dataset narrows it"
    return "undecided: the limit is inside the interval; raise --mlms-budget or --mlms-duration, or quieten the machine"
