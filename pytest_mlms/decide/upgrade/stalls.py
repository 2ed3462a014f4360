"""The decision on stalls: calls that take several times the median, which few rounds can compare.

They are counted over all rounds, on both sides by the same rule. Calls of a process aren't
independent: some processes stall more than others. So rounds must show it, too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from pytest_mlms.core.quantities import upgrade_rules
from pytest_mlms.core.records import Comparison, Verdict
from pytest_mlms.core.statistics import binomial_bounds, fisher_probability, samples_for_percentile
from pytest_mlms.decide.upgrade.figures import STALLED, Figure
from pytest_mlms.decide.upgrade.round_estimate import ROUNDS, RoundSpan, estimate_change, exp_of

RISK = 0.0015
"""Of calling a B that stalls as much more often as is allowed REGRESSED, at each look."""

_SUSPECT = 0.25  # probability by chance below which a candidate is worth more rounds
_SEEN = 99  # the percentile whose calls show a B that never stalls


def compare_stalls(
    rounds: Sequence[Mapping[str, Figure]],
    tolerance: float | None = None,
    span: RoundSpan = ROUNDS,
) -> Comparison | None:
    """Return the verdict on stalls over all rounds.

    ``tolerance`` is the one that was named, which makes them a gate. Otherwise there is nothing to
    tell where B doesn't stall more often than chance has it, and None is returned. The interval is
    the wider one of both: by chance, of so many stalls, and by what differs between rounds. A B
    that never stalls is PASSED after the calls that would show one in a hundred.
    """
    figures = [found["stalls"] for found in rounds if "stalls" in found]
    if not figures:
        return None
    allowed = upgrade_rules("calls")["stalls"].tolerance if tolerance is None else tolerance
    count = sum(figure.calls for figure in figures)
    hits_a = sum(round(figure.a * figure.calls) for figure in figures)
    hits_b = sum(round(figure.b * figure.calls) for figure in figures)
    chance = fisher_probability(hits_a, count, hits_b, count, 1 + allowed)
    of_rounds = estimate_change([figure.value for figure in figures], span)
    of_calls = binomial_bounds(hits_b, hits_a + hits_b, RISK, span.risk_of_passing)
    low = min(_odds(of_calls.low), exp_of(of_rounds.low))
    high = max(_odds(of_calls.high), exp_of(of_rounds.high))
    is_rare = hits_b == 0 and count >= samples_for_percentile(_SEEN)
    verdict = Verdict.INCONCLUSIVE
    if len(figures) >= span.to_fail and low > 1 + allowed:
        verdict = Verdict.REGRESSED
    elif len(figures) >= span.least and (high < 1 + allowed or is_rare):
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
        ratio=(hits_b + 0.5) / (hits_a + 0.5),
        low=low,
        high=high,
        verdict=verdict,
        about=f"A had {hits_a:,} calls of {STALLED} times the median or more, B {hits_b:,}, "
        f"of {count:,} each",
    )


def _odds(share: float) -> float:
    return share / (1 - share) if share < 1 else math.inf
