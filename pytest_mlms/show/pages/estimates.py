"""Rows of estimates: values with their intervals, and the limits on them."""

from __future__ import annotations

import math
from collections.abc import Iterable

from pytest_mlms.core.records import Verdict
from pytest_mlms.keep.results.line import EstimateRecord, LimitRecord
from pytest_mlms.show.pages.canvas import Plot
from pytest_mlms.show.pages.numbers import estimate_text, limit_text, quantity_label

_PAINTS = {Verdict.PASSED: "good", Verdict.INCONCLUSIVE: "warn"}


def is_shown(estimate: EstimateRecord) -> bool:
    """Return whether an estimate has a value that can be judged."""
    return estimate.value is not None and not estimate.lacking


def ends_of(estimates: Iterable[EstimateRecord]) -> list[float]:
    """Return the values of estimates, and the ends of their intervals that are bounded."""
    ends = []
    for estimate in estimates:
        ends += [estimate.value, estimate.low, estimate.high]
    return [end for end in ends if end is not None]


def estimate_words(name: str, estimate: EstimateRecord) -> str:
    """Return a quantity with its value and interval."""
    return f"{quantity_label(name)}: {estimate_text(estimate)}"


def limit_words(limit: LimitRecord, unit: str) -> str:
    """Return a limit with its quantity."""
    name = quantity_label(limit.quantity)
    return f"limit on {name}: {limit_text(limit, unit)}"


def add_estimate(plot: Plot, row: int, name: str, estimate: EstimateRecord) -> None:
    """Add a value with its interval; ends that aren't bounded are those of the chart."""
    title = estimate_words(name, estimate)
    low = -math.inf
    high = math.inf
    if estimate.low is not None:
        low = estimate.low
    if estimate.high is not None:
        high = estimate.high
    if estimate.value is not None:
        plot.estimate(estimate.value, (low, high), row, "b", title)


def add_limit(plot: Plot, row: int, limit: LimitRecord, title: str) -> None:
    """Add a limit in the colour of its verdict."""
    paint = _PAINTS.get(limit.verdict, "bad")
    plot.mark(limit.value, row, paint, title)
