"""Comparison of both sides of an upgrade by the quantities of a task, paired by input.

All functions are pure. docs/methodology.md explains the rule, its sources and its limits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from pytest_mlms.evaluate.estimates import figures_of, resampled_bounds, resampled_figures
from pytest_mlms.evaluate.tasks.task import Array, Evidence
from pytest_mlms.quantities import QUANTITIES, Quantity, upgrade_rules
from pytest_mlms.records import Comparison, Verdict
from pytest_mlms.upgrade.decision import compare_accuracy

__all__ = ["compare_evidence", "compare_figure"]

_BELOW = 0.004
_ABOVE = 0.04
"""Risks of the bounds of a change, as those of shares: they hold 1 and 5 % at the edge."""


def compare_evidence(
    baseline: Evidence, candidate: Evidence, tolerances: Mapping[str, float], seed: int
) -> list[Comparison]:
    """Return the verdict on each quantity of a task, given each side's evidence of the same inputs.

    ``tolerances`` by quantity override the defaults; what they name is a gate. ``seed`` draws the
    samples of the bootstrap.
    """
    found = []
    right_b = candidate.shares
    for name, right_a in baseline.shares.items():
        tolerance = _tolerance_of(name, tolerances)
        found.append(compare_accuracy(name, right_a, right_b[name], tolerance))
    values_a = figures_of(baseline)
    if values_a:
        found += _compare_figures(baseline, candidate, values_a, tolerances, seed)
    return [compared.but(gate=compared.quantity in tolerances) for compared in found]


def _tolerance_of(name: str, tolerances: Mapping[str, float]) -> float:
    return tolerances.get(name, upgrade_rules("inputs")[name].tolerance)


def _compare_figures(
    baseline: Evidence,
    candidate: Evidence,
    values_a: Mapping[str, float],
    tolerances: Mapping[str, float],
    seed: int,
) -> list[Comparison]:
    values_b = figures_of(candidate)
    samples_a, samples_b = resampled_figures([baseline, candidate], seed)
    found = []
    for name, value_a in values_a.items():
        undecided = Comparison(
            quantity=name,
            a=value_a,
            b=values_b[name],
            unit=QUANTITIES[name].unit,
            tolerance=_tolerance_of(name, tolerances),
            gate=False,
            replicates=len(baseline),
            of="inputs",
        )
        found.append(compare_figure(undecided, samples_a[name], samples_b[name]))
    return found


def compare_figure(undecided: Comparison, samples_a: Array, samples_b: Array) -> Comparison:
    """Return the verdict on a figure, given each side's values in the same samples of the inputs.

    The change is that of a fraction itself, and of another figure its share of the baseline's
    value. REGRESSED where it is surely worse than the tolerance, PASSED where it is surely less: by
    a bootstrap of the difference. A tolerance of 0 is about these very inputs: it is PASSED where
    the candidate is no worse in any sample.
    """
    quantity = QUANTITIES[undecided.quantity]
    scale = 1.0 if quantity.unit == "fraction" else abs(undecided.a)
    inputs = undecided.replicates
    if math.isnan(undecided.a) or math.isnan(undecided.b):
        return undecided.but(lacking="these inputs can't tell it")
    if inputs < 2:
        return undecided.but(lacking="a comparison needs 2 inputs")
    if not scale:
        return undecided.but(lacking="the baseline's value is 0, of which there is no share")
    worse = quantity.sign * (samples_b - samples_a) / scale
    low, high = resampled_bounds(worse, _BELOW, _ABOVE, inputs)
    is_no_worse = high <= 0
    if not np.nan_to_num(worse).any():
        high = _unseen_change(quantity, inputs)
    verdict = Verdict.INCONCLUSIVE
    if low > undecided.tolerance:
        verdict = Verdict.REGRESSED
    elif high < undecided.tolerance or (is_no_worse and undecided.tolerance == 0):
        verdict = Verdict.PASSED
    ends = sorted([quantity.sign * low, quantity.sign * high])
    return undecided.but(
        ratio=(undecided.b - undecided.a) / scale, low=ends[0], high=ends[1], verdict=verdict
    )


def _unseen_change(quantity: Quantity, inputs: int) -> float:
    """Return the bound of a change that none of the inputs shows.

    For a fraction, the inputs that the dataset lacks may lose all: as many of them as would leave
    these untouched with the probability of the bound. For another figure there is no such bound.
    """
    if quantity.unit != "fraction":
        return 0.0
    return float(1 - _ABOVE ** (1 / inputs))
