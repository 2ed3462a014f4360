"""Comparison of both sides of an upgrade by the quantities of a task, and by the size of batches.

All functions are pure. docs/methodology.md explains the rule, its sources and its limits.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

import numpy as np
import scipy

from pytest_mlms.core.arrays import Array
from pytest_mlms.core.quantities import QUANTITIES, upgrade_rules
from pytest_mlms.core.records import Comparison, Verdict
from pytest_mlms.core.statistics import student_quantile
from pytest_mlms.decide.upgrade.decision import compare_accuracy
from pytest_mlms.decide.upgrade.output_verdict import verdict_on_share
from pytest_mlms.decide.upgrade.rounds import SideName
from pytest_mlms.measure.evaluate.output_sweep import SPREADS
from pytest_mlms.measure.evaluate.rows import BEYOND_MEASURE, NO_ROWS, TOGETHER, ByBatch
from pytest_mlms.measure.evaluate.scoring import (
    UNDEFINED,
    figures_of,
    resampled_bounds,
    resampled_figures,
)
from pytest_mlms.measure.evaluate.tasks.task import Evidence

_BELOW = 0.004
_ABOVE = 0.02
"""Risks of the bounds of a change, by which 1 % are REGRESSED and 5 % PASSED at the edge."""

_LEAST_STRETCH = 0.2
_UNSEEN = 0.04
"""Risk of the bound of what none of the inputs shows, as that of shares."""


def compare_evidence(
    baseline: Evidence,
    candidate: Evidence,
    tolerances: Mapping[str, float],
    seed: int,
    limited: Collection[str] = (),
) -> list[Comparison]:
    """Return the verdict on each quantity of a task, given each side's evidence of the same inputs.

    ``tolerances`` by quantity override the defaults; what they name is a gate. ``seed`` draws the
    samples of the bootstrap. Quantities that are compared where they are asked for are so where
    ``tolerances`` or ``limited``, the quantities that the manifest limits, have them.
    """
    asked = {*tolerances, *limited}
    rules = upgrade_rules("inputs").items()
    idle = {name for name, rule in rules if rule.asked and name not in asked}
    baseline, candidate = baseline.without(idle), candidate.without(idle)
    found = []
    right_b = candidate.shares
    for name, right_a in baseline.shares.items():
        tolerance = _tolerance_of(name, tolerances)
        if name in right_b:
            found.append(compare_accuracy(name, right_a, right_b[name], tolerance))
        else:
            found.append(_undecided(name, float(right_a.mean()), math.nan, len(right_a), tolerance))
    values_a = {name: value for name, value in figures_of(baseline).items() if name not in idle}
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
        tolerance = _tolerance_of(name, tolerances)
        value_b = values_b.get(name, math.nan)
        undecided = _undecided(name, value_a, value_b, len(baseline), tolerance)
        if name in values_b:
            rounding = baseline.rounding.get(name, 0.0)
            undecided = compare_figure(undecided, samples_a[name], samples_b[name], rounding)
        found.append(undecided)
    return found


def _undecided(name: str, a: float, b: float, inputs: int, tolerance: float) -> Comparison:
    """Return a comparison without a verdict; the candidate's value is NaN where it has none."""
    return Comparison(
        quantity=name,
        a=a,
        b=b,
        unit=QUANTITIES[name].unit,
        tolerance=tolerance,
        gate=False,
        replicates=inputs,
        of="inputs",
        lacking=f"the candidate's outputs have no {name}" if math.isnan(b) else "",
    )


def compare_figure(
    undecided: Comparison, samples_a: Array, samples_b: Array, rounding: float = 0.0
) -> Comparison:
    """Return the verdict on a figure, given each side's values in the same samples of the inputs.

    The change is that of a fraction itself, and of another figure its share of the baseline's
    value. REGRESSED where it is surely worse than the tolerance, PASSED where it is surely less: by
    a bootstrap of the difference, and by the inputs that the dataset lacks, which may lose all. A
    tolerance of 0 is about these very inputs: it is PASSED where the candidate is no worse in any
    sample. A change of at most ``rounding`` is none.
    """
    quantity = QUANTITIES[undecided.quantity]
    scale = 1.0 if quantity.unit == "fraction" else max(abs(undecided.a), rounding)
    inputs = undecided.replicates
    if math.isnan(undecided.a) or math.isnan(undecided.b):
        return undecided.but(lacking=UNDEFINED)
    if inputs < 2:
        return undecided.but(lacking="a comparison needs 2 inputs")
    if not scale:
        return undecided.but(lacking="the baseline's value is 0, of which there is no share")
    change = samples_b - samples_a
    worse = quantity.sign * np.where(np.abs(change) <= rounding, 0.0, change) / scale
    low, _ = resampled_bounds(worse, _BELOW, _ABOVE, inputs)
    high = _accelerated_bound(worse, inputs)
    is_no_worse = high <= 0
    high = max(high, 1 - _UNSEEN ** (1 / inputs))
    verdict = Verdict.INCONCLUSIVE
    if low > undecided.tolerance:
        verdict = Verdict.REGRESSED
    elif high <= undecided.tolerance or (is_no_worse and undecided.tolerance == 0):
        verdict = Verdict.PASSED
    ends = sorted([quantity.sign * low, quantity.sign * high])
    return undecided.but(
        ratio=(undecided.b - undecided.a) / scale, low=ends[0], high=ends[1], verdict=verdict
    )


def _accelerated_bound(samples: Array, inputs: int) -> float:
    """Return the upper bound of a change by its bootstrap samples.

    It is BCa's (Efron 1987, Journal of the American Statistical Association 82:171) with Student's
    quantile as in ``resampled_bounds``. Bias and acceleration are a sixth of the samples' skewness,
    as those of a mean are.
    """
    known = samples[~np.isnan(samples)]
    spread = known.std()
    if not spread:
        return float(known.max())
    acceleration = float(np.mean(((known - known.mean()) / spread) ** 3)) / 6
    wider = student_quantile(inputs - 1, 1 - _ABOVE) * math.sqrt(inputs / (inputs - 1))
    from_bias = acceleration + wider
    stretched = from_bias / max(1 - acceleration * from_bias, _LEAST_STRETCH)
    return float(np.quantile(known, scipy.special.ndtr(acceleration + stretched)))


BATCH_AGREEMENT = "batch_agreement"


def compare_batch_sizes(
    sides: Mapping[SideName, ByBatch], tolerance: float | None, inputs: float, by_design: bool
) -> Comparison | None:
    """Return the verdict on the candidate beside the baseline; None where nothing is known.

    ``tolerance`` is that of the manifest or the command line, which makes it a gate; None: the
    default. A share of ``inputs`` must agree. ``by_design`` candidates are other variants, which
    may take a scale for each batch; they are judged only where it is a gate, or where they give NaN
    or another form. Each output is held to that of the baseline, and the ratio is the candidate's
    difference in the worst one as a multiple of what is allowed.
    """
    a, b = sides["a"], _held_to(sides["a"], sides["b"])
    unknown = a.lacking or b.lacking or a.refused
    if unknown and tolerance is None:
        return None
    rule = upgrade_rules("outputs")[BATCH_AGREEMENT]
    share = rule.tolerance if tolerance is None else tolerance
    of_a, of_b = _worst_output(a, b, rule.base)
    found = Comparison(
        quantity=BATCH_AGREEMENT,
        a=of_a,
        b=of_b,
        unit=QUANTITIES[BATCH_AGREEMENT].unit,
        tolerance=share,
        gate=tolerance is not None,
        replicates=TOGETHER,
        of="outputs",
    )
    unjudged = a.unjudged(b)
    if unknown or TOGETHER in (len(a.sweep.unjudged), len(b.sweep.unjudged)):
        return found.but(a=math.nan, b=math.nan, lacking=unknown or unjudged)

    allowed = (1 + share) * (of_a + rule.base) - rule.base
    has_more_nan = b.sweep.lost > SPREADS * a.sweep.lost
    is_infinite = has_more_nan or of_b > 0 == allowed
    ratio = math.inf if is_infinite else of_b / (allowed or 1)

    has_nan = has_more_nan or (b.sweep.nan and not a.sweep.nan)
    is_broken = bool(b.sweep.problem or has_nan)
    is_worse = ratio > 1 and (found.gate or not by_design or is_broken)
    if is_worse and inputs < 1 and not b.refused:
        is_worse = verdict_on_share(b.sweep, inputs) is Verdict.REGRESSED
    lacking = b.refused or b.sweep.problem if is_worse else unjudged
    verdict = Verdict.INCONCLUSIVE if lacking else Verdict.PASSED
    return found.but(
        ratio=ratio,
        low=ratio,
        high=ratio,
        verdict=Verdict.REGRESSED if is_worse else verdict,
        lacking=lacking,
        told=_told(a, b, found, allowed),
    )


def _worst_output(a: ByBatch, b: ByBatch, base: float) -> tuple[float, float]:
    """Return the ratios of both sides in the output in which B is farthest beyond A."""
    if a.sweep.problem or b.sweep.problem or b.refused:
        return a.ratio, b.ratio
    pairs = [(a.ratios.get(name, 0.0), ratio) for name, ratio in b.ratios.items()]
    return max(pairs, key=lambda pair: (pair[1] + base) / (pair[0] + base), default=(0.0, 0.0))


def _held_to(a: ByBatch, b: ByBatch) -> ByBatch:
    """Return the candidate, which fails where it has no rows of an output that A has rows of."""
    lost = sorted(a.sweep.rules.keys() - b.sweep.rules.keys())
    if not lost or b.refused or b.lacking not in ("", NO_ROWS):
        return b
    return ByBatch(refused=f"it doesn't give a row of {lost[0]!r} for each of {TOGETHER} inputs")


def _told(a: ByBatch, b: ByBatch, found: Comparison, allowed: float) -> str:
    """Return how far each side is apart, in multiples of rounding."""
    where = f"alone and in a batch of {TOGETHER}"
    names = [*a.sweep.unjudged, *b.sweep.unjudged]
    if not a.ratio and not b.ratio and not names:
        return f"{where}, outputs are equal on both sides"
    text = f"{where}, outputs differ by {_times(found.b)} rounding in B, "
    text += f"by {_times(found.a)} in A"
    text += f" (allowed {allowed:.3g})"
    if names:
        count = f"{len(dict.fromkeys(names))} of {TOGETHER}"
        text += f"; not judged for {count} inputs, where rounding decides"
    return text


def _times(ratio: float) -> str:
    return "infinitely more than" if ratio == BEYOND_MEASURE else f"{ratio:.3g} times"
