"""Comparison of variants with the manifest as it is written, paired by input.

Many variants are tried, so their p-values are corrected by Holm's method (Holm 1979, Scandinavian
Journal of Statistics 6:65).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy

from pytest_mlms.author.doctor.variants import Variant
from pytest_mlms.core.arrays import Array
from pytest_mlms.core.quantities import Quantity
from pytest_mlms.measure.evaluate.scoring import figures_of, resampled_bounds, resampled_figures
from pytest_mlms.measure.evaluate.tasks.task import Evidence

_RISK = 0.05  # that any variant is called better wrongly
_TAIL = 0.025  # of the interval of a change
_RESAMPLES = 2000


@dataclass(frozen=True)
class Finding:
    """The score of a variant.

    Attributes:
        variant: The variant that was tried.
        value: The main quantity.
        better: How much better it is than as written, in the quantity's unit.
        low: The lower end of the 95 % interval of that, and ``high`` its upper one.
        p: The probability of such a change or a larger one if there were none.
        is_sure: Whether it is better in spite of how many variants were tried.
    """

    variant: Variant
    value: float
    better: float
    low: float
    high: float
    p: float
    is_sure: bool = False


def value_of(evidence: Evidence, name: str) -> float:
    """Return a quantity of all inputs."""
    if name in evidence.shares:
        return float(np.mean(evidence.shares[name]))
    return figures_of(evidence)[name]


def compare(
    variant: Variant, quantity: Quantity, baseline: Evidence, evidence: Evidence
) -> Finding:
    """Return the score of a variant, and how much better it is than the manifest as written.

    ``better`` is positive where the variant is better, whatever the quantity's direction.
    """
    name = quantity.name
    sign = -quantity.sign
    value = value_of(evidence, name)
    better = sign * (value - value_of(baseline, name))
    if name in baseline.shares:
        before = np.asarray(baseline.shares[name]).astype(int)
        changes = np.asarray(evidence.shares[name]).astype(int) - before
        samples = _resampled_means(changes)
        p = mcnemar(won=int((changes > 0).sum()), lost=int((changes < 0).sum()))
    else:
        of_baseline, of_variant = resampled_figures([baseline, evidence], seed=0)
        samples = sign * (of_variant[name] - of_baseline[name])
        p = _bootstrap_p(samples)
    low, high = -1.0, 1.0  # of a single input nothing is known
    if len(baseline) > 1:
        low, high = resampled_bounds(samples, _TAIL, _TAIL, len(baseline))
    return Finding(variant, value, better, min(low, better), max(high, better), p)


def _resampled_means(values: Array) -> Array:
    """Return the means of samples of values that are -1, 0 and 1."""
    count = len(values)
    shares = [float((values == one).mean()) for one in (-1, 0, 1)]
    drawn = np.random.default_rng(0).multinomial(count, shares, size=_RESAMPLES)
    return np.asarray((drawn[:, 2] - drawn[:, 0]) / count)


def mcnemar(won: int, lost: int) -> float:
    """Return the two-sided p-value of McNemar's exact test (1947, Psychometrika 12:153)."""
    count = won + lost
    if count == 0:
        return 1.0
    return min(1.0, 2 * float(scipy.special.bdtr(min(won, lost), count, 0.5)))


def _bootstrap_p(samples: Array) -> float:
    """Return a two-sided p-value of a difference by its bootstrap samples."""
    known = samples[~np.isnan(samples)]
    below = (1 + (known <= 0).sum()) / (1 + len(known))
    above = (1 + (known >= 0).sum()) / (1 + len(known))
    return float(min(1.0, 2 * min(below, above)))


def with_holm(findings: Sequence[Finding]) -> list[Finding]:
    """Return findings with whether each is surely better, however many there are."""
    rejected = holm([finding.p for finding in findings], _RISK)
    pairs = zip(findings, rejected, strict=True)
    return [replace(one, is_sure=sure and one.better > 0) for one, sure in pairs]


def holm(p_values: Sequence[float], risk: float) -> list[bool]:
    """Return which hypotheses of no change are rejected, with this risk that any is wrongly."""
    order = sorted(range(len(p_values)), key=lambda number: p_values[number])
    rejected = [False] * len(p_values)
    for rank, number in enumerate(order):
        if p_values[number] > risk / (len(p_values) - rank):
            break
        rejected[number] = True
    return rejected
