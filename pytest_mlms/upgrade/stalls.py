"""The decision on stalls: calls that take several times the median, which few rounds can compare.

They are counted over all rounds, on both sides by the same rule. Calls of a process aren't
independent: some processes stall more than others. So rounds must show it, too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from pytest_mlms.quantities import upgrade_rules
from pytest_mlms.records import Comparison, Verdict
from pytest_mlms.statistics import fisher_probability
from pytest_mlms.upgrade.figures import STALLED, Figure
from pytest_mlms.upgrade.round_estimate import ROUNDS, RoundSpan, estimate_change

__all__ = ["RISK", "compare_stalls"]

RISK = 0.0015
"""Of calling a B that stalls as much more often as is allowed REGRESSED, at each look."""

_SUSPECT = 0.25  # probability by chance below which a candidate is worth more rounds
_ERRORS = 1.28  # standard errors from the estimate to an end of its interval


def compare_stalls(
    rounds: Sequence[Mapping[str, Figure]],
    tolerance: float | None = None,
    span: RoundSpan = ROUNDS,
) -> Comparison | None:
    """Return the verdict on stalls over all rounds.

    ``tolerance`` is the one that was named, which makes them a gate. Otherwise there is nothing to
    tell where B doesn't stall more often than chance has it, and None is returned. It is REGRESSED
    where neither chance nor what differs between rounds explains it.
    """
    figures = [found["stalls"] for found in rounds if "stalls" in found]
    if not figures:
        return None
    allowed = upgrade_rules("calls")["stalls"].tolerance if tolerance is None else tolerance
    count = sum(figure.calls for figure in figures)
    hits_a = sum(round(figure.a * figure.calls) for figure in figures)
    hits_b = sum(round(figure.b * figure.calls) for figure in figures)
    chance = fisher_probability(hits_a, count, hits_b, count, 1 + allowed)
    change = math.log((hits_b + 0.5) / (hits_a + 0.5))
    error = _ERRORS * math.sqrt(1 / (hits_a + 0.5) + 1 / (hits_b + 0.5))
    low, ratio, high = (math.exp(change + n * error) for n in (-1, 0, 1))
    verdict = Verdict.INCONCLUSIVE
    of_rounds = estimate_change([figure.value for figure in figures], span)
    is_shown = of_rounds.low > math.log1p(allowed)
    if len(figures) >= span.to_fail and chance <= RISK and is_shown:
        verdict = Verdict.REGRESSED
    elif high < 1 + allowed or hits_b == 0:
        verdict = Verdict.PASSED
    if tolerance is None and (verdict is Verdict.PASSED or chance > _SUSPECT):
        return None
    return Comparison(
        quantity="stalls",
        a=hits_a / count,
        b=hits_b / count,
        unit="fraction",
        tolerance=allowed,
        gate=tolerance is not None,
        replicates=count,
        of="calls",
        ratio=ratio,
        low=low,
        high=high,
        verdict=verdict,
        about=f"A had {hits_a:,} calls of {STALLED} times the median or more, B {hits_b:,}, "
        f"of {count:,} each",
    )
