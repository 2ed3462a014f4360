"""Estimates of a soak from its blocks of calls: pure functions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from pytest_mlms.agent.process import Array
from pytest_mlms.records import Estimate
from pytest_mlms.statistics import theil_sen, theil_sen_interval

__all__ = ["Blocks", "estimate_soak"]

Blocks = Mapping[str, Array]
"""The columns of ``soak.SoakSeries`` by name."""

_WARM_UP = 0.1  # share of the blocks
_LEAST_BLOCKS = 24
_PARTS = 3
_GROUPS = 12  # of neighbours, whose medians are independent enough
_CONFIDENCE = 0.99


def estimate_soak(b: Blocks, a: Blocks | None = None) -> dict[str, Estimate]:
    """Return the quantities of ``b``: where ``a`` had turns between, how far they are beyond its.

    A drift is over the whole time, by Theil and Sen's slope. So is growth, whose interval has the
    least and the largest slope of three parts: a step is in one of them.
    """
    sides = [b] if a is None else [b, a]
    count = min(len(side["calls"]) for side in sides)
    skipped = math.ceil(_WARM_UP * count)
    kept = [{name: side[name][skipped:count] for name in side} for side in sides]
    if count - skipped < _LEAST_BLOCKS:
        lacking = (
            f"needs {_LEAST_BLOCKS} blocks of calls after the first tenth, had {count - skipped}"
        )
        nothing = Estimate(math.nan, 0.0, math.inf, 1.0, count, "blocks", f"{lacking}: soak longer")
        return dict.fromkeys(_QUANTITIES, nothing)
    return {name: estimator(kept) for name, estimator in _QUANTITIES.items()}


def _growth(sides: list[dict[str, Array]]) -> Estimate:
    whole, *parts = _beyond(_slopes, sides)
    return _estimate(whole, min(parts), max(parts), sides)


def _slopes(side: Blocks) -> Array:
    """Return the bytes a call over all blocks, and over each of their parts."""
    calls = np.cumsum(side["calls"])
    parts = zip(np.array_split(calls, _PARTS), np.array_split(side["memory"], _PARTS), strict=True)
    return np.array([theil_sen(calls, side["memory"]), *[theil_sen(*part) for part in parts]])


def _added(column: str) -> Callable[[list[dict[str, Array]]], Estimate]:
    """Return the estimator of what a process got more of: 0 where it didn't all the time."""

    def added(side: Blocks) -> float:
        first, middle, last = (np.median(part) for part in np.array_split(side[column], _PARTS))
        return float(last - first) if first < middle < last else 0.0

    return lambda sides: _single(max(0.0, _beyond(added, sides)), sides)


def _drift(column: str) -> Callable[[list[dict[str, Array]]], Estimate]:
    """Return the estimator of the rise of a column over the whole time, as a share."""

    def logarithms(side: Blocks) -> Array:
        return np.log(side[column])

    def estimate(sides: list[dict[str, Array]]) -> Estimate:
        seconds = _medians_of_groups(sides[0]["seconds"])
        values = _medians_of_groups(_beyond(logarithms, sides))
        span = sides[0]["seconds"][-1] - sides[0]["seconds"][0]
        interval = theil_sen_interval(seconds, values, _CONFIDENCE)
        value, low, high = np.expm1(span * np.array([theil_sen(seconds, values), *interval]))
        return _estimate(float(value), float(low), float(high), sides)

    return estimate


def _medians_of_groups(values: Array) -> Array:
    return np.array([np.median(group) for group in np.array_split(values, _GROUPS)])


def _outputs(sides: list[dict[str, Array]]) -> Estimate:
    return _single(float(sides[0]["difference"].max()), sides)


def _beyond(function: Callable[[Blocks], Any], sides: list[dict[str, Array]]) -> Any:
    """Return a function of the first side, less that of the second one where there are two."""
    values = [function(side) for side in sides]
    return values[0] if len(values) == 1 else values[0] - values[1]


def _single(value: float, sides: list[dict[str, Array]]) -> Estimate:
    return Estimate(value, value, value, 1.0, len(sides[0]["calls"]), "blocks")


def _estimate(value: float, low: float, high: float, sides: list[dict[str, Array]]) -> Estimate:
    return Estimate(value, low, high, _CONFIDENCE, len(sides[0]["calls"]), "blocks")


_QUANTITIES = {
    "soak_growth": _growth,
    "soak_threads": _added("threads"),
    "soak_descriptors": _added("descriptors"),
    "soak_latency_drift": _drift("latency"),
    "soak_throughput_drift": _drift("mean"),
    "soak_outputs": _outputs,
}
"""Quantity of a soak -> its estimator, given the blocks of one or both sides."""
