"""Quantities of one round, computed from its raw measurements."""

from __future__ import annotations

import math
from typing import Annotated, NamedTuple

import numpy as np

from pytest_mlms.quantities import upgrade_rules
from pytest_mlms.serialization import NullAs, plain_as_list
from pytest_mlms.statistics import persistence, quantile_ratio, ratio_of_means, signed_rank
from pytest_mlms.upgrade.rounds import Array, Clock, Round

__all__ = ["Figure", "figures_of"]

_OF_PROCESS = {
    "first_inference": "first_seconds",
    "load_time": "load_seconds",
    "peak_memory": "peak_bytes",
}
"""Quantity that a process has once -> the attribute of Side."""

_ERRORS_IN_INTERVAL = 3.92  # a 95 % interval is so many standard errors wide


@plain_as_list
class Figure(NamedTuple):
    """A quantity in one round.

    ``a`` and ``b`` are the values of both sides, ``value`` is log(b / a), and ``error`` its
    standard error, infinite where the round says nothing of it. ``calls`` is the number of calls
    of a side that were measured for it.
    """

    a: float
    b: float
    value: float
    error: Annotated[float, NullAs(math.inf)]
    calls: int = 0


def figures_of(measured: Round, clock: Clock, batch_size: int) -> dict[str, Figure]:
    """Return the quantities of a round by name; ``clock`` is that of latency and throughput.

    Quantities of the process, such as its time to load, have no error: the rounds are their
    samples.
    """
    a = measured.a.times(clock)
    b = measured.b.times(clock)
    figures = {
        "latency": _centre(a, b),
        "cpu_time": _centre(measured.a.times("cpu"), measured.b.times("cpu")),
        "wall_time": _centre(measured.a.wall, measured.b.wall),
    }
    if clock == "cpu":
        # CPU time is known for a whole turn, and percentiles need the time of each call.
        a = measured.a.wall
        b = measured.b.wall
    if a.min() > 0 and b.min() > 0:
        figures["latency_p90"] = _percentile(a, b, 90)
        figures["latency_p95"] = _percentile(a, b, 95)
        figures["throughput"] = _throughput(a, b, batch_size)
    figures.update(_of_process(measured))
    return figures


def _centre(a: Array, b: Array) -> Figure:
    """Compare the median calls of all pairs of turns: the centre of log(b / a)."""
    turns_a = np.median(a, axis=1)
    turns_b = np.median(b, axis=1)
    if turns_a.min() <= 0 or turns_b.min() <= 0:
        # This clock did not advance between two readings.
        return Figure(float(turns_a.mean()), float(turns_b.mean()), 0.0, math.inf, a.size)
    ratios = np.log(turns_b / turns_a)
    centre, low, high = signed_rank(ratios)
    error = (high - low) / _ERRORS_IN_INTERVAL * persistence(ratios)
    return Figure(float(np.median(a)), float(np.median(b)), centre, error, a.size)


def _percentile(a: Array, b: Array, percent: float) -> Figure:
    value, error = quantile_ratio(b, a, percent)
    percentile_a = float(np.percentile(a, percent))
    percentile_b = float(np.percentile(b, percent))
    return Figure(percentile_a, percentile_b, value, error, a.size)


def _throughput(a: Array, b: Array, batch_size: int) -> Figure:
    value, error = ratio_of_means(a.mean(axis=1), b.mean(axis=1))
    rate_a = batch_size / float(a.mean())
    rate_b = batch_size / float(b.mean())
    return Figure(rate_a, rate_b, value, error, a.size)


def _of_process(measured: Round) -> dict[str, Figure]:
    figures = {}
    rules = upgrade_rules()
    for name, attribute in _OF_PROCESS.items():
        a = getattr(measured.a, attribute)
        b = getattr(measured.b, attribute)
        if a and b:
            base = rules[name].base
            value = math.log((b + base) / (a + base))
            figures[name] = Figure(float(a), float(b), value, 0.0)
    return figures
