"""Texts of numbers: the one place where terminal, pages and reports get them from."""

from __future__ import annotations

import math

from pytest_mlms.core.quantities import QUANTITIES
from pytest_mlms.core.records import Verdict
from pytest_mlms.core.units import format_quantity
from pytest_mlms.decide.upgrade.labels import percent
from pytest_mlms.keep.results.line import EstimateRecord, LimitRecord, OwnQuantity

_WORDS = {Verdict.ERROR: "with errors", Verdict.INCONCLUSIVE: "undecided"}
"""Verdict -> its words after a number, where these are not the verdict's own."""

_MANY_TIMES = 2.0
"""The ratio from which on it is written as such, and no longer as a change in percent."""

_SCALES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))

NONE = "-"
"""Shown where there is no number."""


def verdict_words(verdict: Verdict) -> str:
    """Return a verdict's words after a number: 3 undecided, 2 failed."""
    return _WORDS.get(verdict, verdict.value.lower())


def value_text(value: float | None, unit: str) -> str:
    """Return a value with its unit; "-" for None and NaN."""
    return NONE if value is None else format_quantity(value, unit)


def count_text(count: int) -> str:
    """Return a count with three digits, such as "1.43 G"."""
    for scale, unit in _SCALES:
        if count >= scale:
            return f"{count / scale:.3g} {unit}"
    return str(count)


def duration_text(seconds: float | None) -> str:
    """Return how long something took: "21 s", "41 min", "2 h 5 min"; "" where it isn't known."""
    if seconds is None:
        return ""
    if seconds < 60:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours:,} h {minutes} min" if hours else f"{minutes} min"


def interval_text(value: float | None, low: float | None, high: float | None, unit: str) -> str:
    """Return a value with both ends of its interval; an end that is None is unbounded.

    Fractions are written in percent with one sign for all three.
    """
    if value is None:
        return NONE
    if low is None and high is None:
        return value_text(value, unit)
    ends = [value, -math.inf if low is None else low, math.inf if high is None else high]
    if unit == "fraction":
        middle, lower, upper = (f"{100 * end:.2f}" for end in ends)
        return f"{middle} ({lower} to {upper}) %"
    middle, lower, upper = (format_quantity(end, unit) for end in ends)
    return f"{middle} ({lower} to {upper})"


def estimate_text(estimate: EstimateRecord | None) -> str:
    """Return an estimate with its interval; "-" where it is missing or can't be judged."""
    if estimate is None or estimate.lacking:
        return NONE
    return interval_text(estimate.value, estimate.low, estimate.high, estimate.unit)


def own_text(quantity: OwnQuantity) -> str:
    """Return a quantity of a user's own test, with its interval if it has one."""
    return interval_text(quantity.value, quantity.low, quantity.high, quantity.unit)


def unit_of(limit: LimitRecord, estimate: EstimateRecord | None) -> str:
    """Return the base unit of a limit."""
    if estimate is not None:
        return estimate.unit
    known = QUANTITIES.get(limit.quantity)
    return known.unit if known else ""


def limit_text(limit: LimitRecord, unit: str) -> str:
    """Return a limit as a bound: "at most 50.0 ms"."""
    bound = "at least" if limit.max is None else "at most"
    return f"{bound} {value_text(limit.value, unit)}"


def distance_text(limit: LimitRecord, value: float | None) -> str:
    """Return how far a value is from its limit: "12 % above", "22.2 times as much".

    "" where there is no value or the limit is 0.
    """
    if value is None or not limit.value or math.isnan(limit.value):
        return ""
    ratio = value / limit.value
    if ratio == 1:
        return "at the limit"
    if ratio >= _MANY_TIMES:
        return f"{ratio:,.3g} times as much"
    side = "above" if ratio > 1 else "below"
    return f"{percent(abs(ratio - 1))} {side}"


def more_or_less(ratio: float) -> str:
    """Return a ratio as a change: "33.2 % more"."""
    if ratio >= _MANY_TIMES:
        return f"{ratio:,.3g} times as much"
    side = "more" if ratio > 1 else "less"
    return f"{percent(abs(ratio - 1))} {side}"


def quantity_label(name: str) -> str:
    """Return a quantity's name as people read it: "latency p50"."""
    return name.replace("_", " ")


def signed(ratio: float) -> str:
    """Return a ratio as a change in percent with its sign."""
    sign = "+" if ratio >= 1 else "−"
    return f"{sign}{percent(abs(ratio - 1), '.2g')}"
