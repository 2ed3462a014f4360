"""Estimates of the quantities of a task from its evidence, with intervals over the inputs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
import scipy

from pytest_mlms.core.quantities import QUANTITIES, Quantity
from pytest_mlms.core.records import Estimate
from pytest_mlms.core.statistics import student_quantile, wilson_interval
from pytest_mlms.measure.evaluate.tasks.task import Array, Evidence

UNDEFINED = "it is undefined for these inputs, as where all labels are empty or alike"
"""Why there is no value of a quantity, such as R² of labels that don't vary."""

_CONFIDENCE = 0.95
_RESAMPLES = 1000
_MOST_COUNTS = 1 << 22
"""Counts of inputs in samples that are there at once: 32 MiB."""


def estimate_evidence(evidence: Evidence, seed: int) -> dict[str, Estimate]:
    """Return the quantities of a task with their 95 % intervals.

    Shares have Wilson's interval, and figures one of the bootstrap over the inputs, drawn by
    ``seed``.
    """
    inputs = len(evidence)
    estimates = {}
    for name, right in evidence.shares.items():
        estimates[name] = estimate_share(int(right.sum()), inputs)
    values = figures_of(evidence)
    if not values:
        return estimates
    (samples,) = resampled_figures([evidence], seed)
    for name, value in values.items():
        bias = evidence.biases.get(name, 0.0)
        estimates[name] = _estimate_figure(QUANTITIES[name], value, samples[name], inputs, bias)
    return estimates


def estimate_share(count: int, inputs: int) -> Estimate:
    """Return the share of ``count`` among ``inputs``, with Wilson's interval at 95 %."""
    share = count / inputs
    low, high = wilson_interval(count, inputs, confidence=_CONFIDENCE)
    return _estimate(share, low, high, inputs)


def _estimate(value: float, low: float, high: float, inputs: int, lacking: str = "") -> Estimate:
    return Estimate(
        value=value,
        low=low,
        high=high,
        confidence=_CONFIDENCE,
        replicates=inputs,
        of="inputs",
        lacking=lacking,
    )


def figures_of(evidence: Evidence) -> dict[str, float]:
    """Return the figures of all inputs, each once."""
    found = evidence.figures(np.ones((1, len(evidence))))
    return {name: float(values[0]) for name, values in found.items()}


def resampled_figures(sides: Sequence[Evidence], seed: int) -> list[dict[str, Array]]:
    """Return the figures of each side in 1,000 samples of the inputs, drawn with replacement.

    All sides have the same samples, so that they are paired.
    """
    parts: list[list[dict[str, Array]]] = [[] for _ in sides]
    for counts in _resampled_counts(len(sides[0]), seed):
        for side, found in zip(sides, parts, strict=True):
            found.append(dict(side.figures(counts)))
    joined = []
    for found in parts:
        names = found[0]
        joined.append({name: np.concatenate([part[name] for part in found]) for name in names})
    return joined


def _resampled_counts(inputs: int, seed: int) -> Iterator[Array]:
    """Yield how often each input is in each sample (R x inputs), some samples at a time."""
    generator = np.random.default_rng(seed)
    most = max(1, _MOST_COUNTS // inputs)
    for first in range(0, _RESAMPLES, most):
        counts = np.empty((min(most, _RESAMPLES - first), inputs))
        for sample in counts:
            drawn = generator.integers(inputs, size=inputs)
            sample[:] = np.bincount(drawn, minlength=inputs)
        yield counts


def resampled_bounds(
    samples: Array, below: float, above: float, inputs: int
) -> tuple[float, float]:
    """Return the bounds of a figure by its bootstrap samples, of which NaN are left out.

    It is below the first with a probability of ``below``, and above the second with one of
    ``above``: the percentiles of the samples, expanded for few inputs by Student's t and the lost
    degree of freedom (Hesterberg 2015, The American Statistician 69:371, section 4.5).
    """
    known = samples[~np.isnan(samples)]
    low = np.quantile(known, _expanded(below, inputs))
    high = np.quantile(known, 1 - _expanded(above, inputs))
    return float(low), float(high)


def _expanded(tail: float, inputs: int) -> float:
    wider = student_quantile(inputs - 1, tail) * math.sqrt(inputs / (inputs - 1))
    return float(scipy.special.ndtr(wider))


def _estimate_figure(
    quantity: Quantity, value: float, samples: Array, inputs: int, bias: float
) -> Estimate:
    if math.isnan(value) or np.isnan(samples).all():
        return _estimate(value, 0.0, math.inf, inputs, lacking=UNDEFINED)
    if inputs < 2:
        return _estimate(value, 0.0, math.inf, inputs, lacking="an interval needs 2 inputs")
    tail = (1 - _CONFIDENCE) / 2
    low, high = resampled_bounds(samples, tail, tail, inputs)
    low = max(min(low, value) - bias, 0.0) if bias else min(low, value)
    high = max(high, value)
    if low == high and quantity.unit == "fraction":
        low, high = _interval_without_spread(quantity, value, inputs)
    return _estimate(value, low, high, inputs)


def _interval_without_spread(quantity: Quantity, value: float, inputs: int) -> tuple[float, float]:
    """Return the interval of a fraction that is the same in all samples.

    The inputs that the dataset lacks may be as wrong as can be: as many of them as Wilson's
    interval allows where all inputs are alike.
    """
    alike = wilson_interval(inputs, inputs, confidence=_CONFIDENCE).low
    if quantity.better == "higher":
        return alike * value, value
    return value, alike * value + (1 - alike)
