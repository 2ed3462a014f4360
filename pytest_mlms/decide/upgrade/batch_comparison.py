"""The verdict on how far each side of an upgrade agrees with itself by the size of the batch."""

from __future__ import annotations

import math
from collections.abc import Mapping

from pytest_mlms.core.quantities import QUANTITIES, upgrade_rules
from pytest_mlms.core.records import Comparison, Verdict
from pytest_mlms.decide.upgrade.output_verdict import verdict_on_share
from pytest_mlms.decide.upgrade.rounds import SideName
from pytest_mlms.measure.evaluate.batch_sizes import BEYOND_MEASURE, NO_ROWS, TOGETHER, ByBatch
from pytest_mlms.measure.evaluate.output_sweep import SPREADS

BATCH_AGREEMENT = "batch_agreement"


def compare_batch_sizes(
    sides: Mapping[SideName, ByBatch], tolerance: float | None, inputs: float, by_design: bool
) -> Comparison | None:
    """Return the verdict on the candidate, by what the baseline does; None where nothing is known.

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
    unknown = unknown or _undecided(a, b)
    if unknown:
        return found.but(a=math.nan, b=math.nan, lacking=unknown)
    allowed = (1 + share) * (of_a + rule.base) - rule.base
    has_more_nan = b.sweep.lost > SPREADS * a.sweep.lost
    is_infinite = has_more_nan or of_b > 0 == allowed
    ratio = math.inf if is_infinite else of_b / (allowed or 1)
    has_nan = has_more_nan or (b.sweep.nan and not a.sweep.nan)
    is_broken = bool(b.sweep.problem or has_nan)
    is_worse = ratio > 1 and (found.gate or not by_design or is_broken)
    if is_worse and inputs < 1 and not b.refused:
        is_worse = verdict_on_share(b.sweep, inputs) is Verdict.REGRESSED
    return found.but(
        ratio=ratio,
        low=ratio,
        high=ratio,
        verdict=Verdict.REGRESSED if is_worse else Verdict.PASSED,
        lacking=b.refused or b.sweep.problem if is_worse else "",
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


def _undecided(a: ByBatch, b: ByBatch) -> str:
    for side in (a, b):
        if side.sweep.inputs and len(side.sweep.unjudged) == side.sweep.inputs:
            return "rounding decides the outputs for all of them; write an agreement"
    return ""


def _told(a: ByBatch, b: ByBatch, found: Comparison, allowed: float) -> str:
    """Return how far each side is apart, in multiples of rounding."""
    where = f"alone and in a batch of {TOGETHER}"
    if not a.ratio and not b.ratio:
        return f"{where}, outputs are equal on both sides"
    text = f"{where}, outputs differ by {_times(found.b)} rounding in B, "
    text += f"by {_times(found.a)} in A"
    text += f" (allowed {allowed:.3g})"
    names = [*a.sweep.unjudged, *b.sweep.unjudged]
    if names:
        count = f"{len(dict.fromkeys(names))} of {TOGETHER}"
        text += f"; not judged for {count} inputs, where rounding decides"
    return text


def _times(ratio: float) -> str:
    return "infinitely more than" if ratio == BEYOND_MEASURE else f"{ratio:.3g} times"
