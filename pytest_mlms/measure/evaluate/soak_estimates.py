"""Estimates of a soak from its blocks of calls: pure functions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import numpy as np

from pytest_mlms.core.records import Estimate
from pytest_mlms.core.statistics import theil_sen, theil_sen_interval
from pytest_mlms.measure.agent.process import Array
from pytest_mlms.measure.evaluate.output_sweep import SPREADS

Blocks = Mapping[str, Array]
"""The columns of ``soak.SoakSeries`` by name."""

Sides = Sequence[Blocks]
"""The blocks of B, and those of A where it had turns between."""

_WARM_UP = 0.1  # share of the blocks
_LEAST_BLOCKS = 24
_PARTS = 3
_SELDOM = 0.05  # of blocks that have another form
_GROUPS = 13  # of neighbours, whose medians are independent enough
_CONFIDENCE = 0.99  # that of the second of 12 values, from either end, is 99.4 %


def estimate_soak(b: Blocks, a: Blocks | None = None) -> dict[str, Estimate]:
    """Return the quantities of ``b``: where ``a`` had turns between, how far they are beyond its.

    A drift is over the whole time, by Theil and Sen's slope. Growth is the median of the slopes
    between groups of neighbours, which are about independent also where memory wanders: their
    distribution-free interval leaves out the least and the largest, so that one step is no growth.
    """
    sides = [b] if a is None else [b, a]
    count, skipped = _counted(sides)
    if lacks_blocks(sides):
        needed = f"needs {_LEAST_BLOCKS} blocks of calls after the first tenth"
        lacking = f"{needed}, had {count - skipped}: soak longer"
        nothing = Estimate(math.nan, 0.0, math.inf, 1.0, count, "blocks", lacking)
        return dict.fromkeys(_QUANTITIES, nothing)
    kept = []
    for side in sides:
        kept.append({name: values[skipped:count] for name, values in side.items()})
    return {name: estimator(kept) for name, estimator in _QUANTITIES.items()}


def lacks_blocks(sides: Iterable[Blocks]) -> bool:
    """Return whether a soak has too few blocks to be judged."""
    count, skipped = _counted(sides)
    return count - skipped < _LEAST_BLOCKS


def _counted(sides: Iterable[Blocks]) -> tuple[int, int]:
    """Return the number of blocks, and of the first that don't count."""
    count = min(len(side["calls"]) for side in sides)
    return count, math.ceil(_WARM_UP * count)


def _growth(sides: Sides) -> Estimate:
    slopes = np.sort(_beyond(_slopes, sides))
    return _estimate(float(np.median(slopes)), float(slopes[1]), float(slopes[-2]), sides)


def _slopes(side: Blocks) -> Array:
    """Return the bytes a call between groups of neighbours."""
    calls = _medians_of_groups(np.cumsum(side["calls"]))
    memory = _medians_of_groups(side["memory"], "lower")  # halfway up a step would be two steps
    return np.asarray(np.diff(memory) / np.diff(calls))


def _added(column: str, sides: Sides) -> Estimate:
    """Return how much more a process got of something: 0 where it didn't all the time."""

    def added(side: Blocks) -> float:
        parts = np.array_split(side[column], _PARTS)
        first, middle, last = (float(np.median(part)) for part in parts)
        is_rising = first < middle < last
        return last - first if is_rising else 0.0

    more: float = _beyond(added, sides)
    return _exactly(max(0.0, more), sides)


def _drift(column: str, sides: Sides) -> Estimate:
    """Return the rise of a column over the whole time, as a share."""

    def logarithms(side: Blocks) -> Array:
        return np.log(side[column])

    time = sides[0]["seconds"]
    seconds = _medians_of_groups(time)
    values = _medians_of_groups(_beyond(logarithms, sides))
    slope = theil_sen(seconds, values)
    interval = theil_sen_interval(seconds, values, _CONFIDENCE)
    span = time[-1] - time[0]
    value, low, high = np.expm1(span * np.array([slope, *interval]))
    return _estimate(float(value), float(low), float(high), sides)


def _medians_of_groups(values: Array, of_two: Literal["linear", "lower"] = "linear") -> Array:
    groups = np.array_split(values, _GROUPS)
    return np.array([np.quantile(group, 0.5, method=of_two) for group in groups])


def _outputs(sides: Sides) -> Estimate:
    """Return the largest difference; nothing is known of outputs whose form changes by the call.

    Where it does so on both sides where there are two, blocks of the first form may still show a
    drift.
    """
    if not all(2 in np.array_split(side["form"], _PARTS)[0] for side in sides):
        shares = [np.mean(side["form"] > 0) for side in sides]
        is_more = shares[0] > SPREADS * shares[-1] + _SELDOM
        if not shares[0] or is_more or not all(map(_is_form_drawn, sides)):
            return _values(sides)
    alike = []
    for side in sides:
        alike.append({name: values[side["form"] == 0] for name, values in side.items()})
    if min(len(side["form"]) for side in alike) >= _PARTS:
        found = _values(alike)
        if found.value > 1 and not found.lacking:
            return found
    lacking = "outputs change their form from call to call, which is no measure of what time does"
    return replace(_exactly(math.inf, sides), lacking=f"{lacking}; fix the model's seed")


def _is_form_drawn(side: Blocks) -> bool:
    """Return whether the form of outputs changes by the call.

    Where it does so seldom, it is drawn as the numbers are, unless most blocks have another at the
    end.
    """
    first, _, last = np.array_split(side["form"], _PARTS)
    repeats = side["repeat"][: len(first)][first == 0]
    is_number_drawn = len(repeats) > 0 and 1 < np.median(repeats) < math.inf
    return 2 in first or bool(is_number_drawn and np.mean(last > 0) < 0.5)


def _values(sides: Sides) -> Estimate:
    """Return the largest difference; nothing is known where calls in a row differ from the start.

    A model that draws numbers is so by design: on both sides where there are two. What is NaN, or
    ends farther off, is known. It is 0 where neither does so, and the baseline drifts as much.
    """
    difference = sides[0]["difference"]
    found = _exactly(float(difference.max()), sides)
    repeats = [np.array_split(side["repeat"], _PARTS)[0] for side in sides]
    by_call = [float(np.median(repeat)) for repeat in repeats]
    if len(sides) > 1 and max(by_call) <= 1 and _drifts_as(sides[0], sides[1]):
        return _exactly(0.0, sides)
    is_farther = np.median(np.array_split(difference, _PARTS)[-1]) > SPREADS * repeats[0].max()
    if not all(1 < each < math.inf for each in by_call) or is_farther or np.isinf(difference).any():
        return found
    return replace(
        found,
        lacking=f"outputs vary by {by_call[0]:.2g} times rounding from call to call, which is no "
        "measure of what time does; fix the model's seed",
    )


def _drifts_as(b: Blocks, a: Blocks) -> bool:
    """Return whether outputs of A drift, and those of B no more than twice as far and as often.

    Numbers, NaN and infinities, and other forms are each allowed by their own kind only.
    """
    farthest, counts = [], []
    for side in (b, a):
        difference = side["difference"]
        is_far, is_other = difference > 1, side["form"] > 0
        is_number = np.isfinite(difference)
        farthest.append(difference[is_far & is_number].max(initial=0.0))
        kinds = (is_number, ~is_number & ~is_other, ~is_number & is_other)
        counts.append(np.array([np.sum(is_far & kind) for kind in kinds]))
    is_near = farthest[0] <= SPREADS * farthest[1] and (counts[0] <= SPREADS * counts[1]).all()
    return bool(counts[1].any() and is_near)


def _beyond(function: Callable[[Blocks], Any], sides: Sides) -> Any:
    """Return a function of the first side, less that of the second one where there are two."""
    first, *others = (function(side) for side in sides)
    return first - others[0] if others else first


def _exactly(value: float, sides: Sides) -> Estimate:
    return Estimate(value, value, value, 1.0, len(sides[0]["calls"]), "blocks")


def _estimate(value: float, low: float, high: float, sides: Sides) -> Estimate:
    return Estimate(value, low, high, _CONFIDENCE, len(sides[0]["calls"]), "blocks")


_QUANTITIES: dict[str, Callable[[Sides], Estimate]] = {
    "soak_growth": _growth,
    "soak_threads": partial(_added, "threads"),
    "soak_descriptors": partial(_added, "descriptors"),
    "soak_latency_drift": partial(_drift, "latency"),
    "soak_throughput_drift": partial(_drift, "mean"),
    "soak_outputs": _outputs,
}
"""Quantity of a soak -> its estimator."""
