"""The decision rule of an upgrade: verdicts on quantities, from the figures of rounds.

All functions are pure. docs/methodology.md explains the rule, its sources and its limits.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import NamedTuple

from pytest_mlms.core.quantities import QUANTITIES, Quantity, upgrade_rules
from pytest_mlms.core.records import Comparison, Verdict, main_comparison
from pytest_mlms.core.statistics import (
    binomial_bounds,
    fisher_probability,
    largest_loss,
    samples_for_percentile,
)
from pytest_mlms.decide.upgrade.figures import STALLED, Figure
from pytest_mlms.decide.upgrade.round_estimate import (
    ROUNDS,
    RoundSpan,
    estimate_change,
    exp_of,
    found_above,
)
from pytest_mlms.decide.upgrade.rounds import Array

RISK_OF_FAILING = 0.01
"""Of calling a change at the edge of the tolerance REGRESSED, over all looks together."""

RISK_OF_PASSING = 0.05
"""Of calling a change at the edge of the tolerance PASSED, over all looks together."""

_BOUND_OF_FAILING = 0.004
_BOUND_OF_PASSING = 0.04
"""Risks of the bounds of accuracy. Counts are whole, so that the real risks are up to 1 and 5 %."""

_POWER = 0.8  # probability that the smallest detectable change is found


def compare_rounds(
    rounds: Sequence[Mapping[str, Figure]],
    tolerances: Mapping[str, float],
    gates: Iterable[str] = ("latency",),
    span: RoundSpan = ROUNDS,
    orders: Sequence[int] = (),
) -> list[Comparison]:
    """Return the verdict on each quantity after these rounds.

    ``tolerances`` override the defaults. The risk of a look is the same at each, and can therefore
    be applied again later with other tolerances. ``orders`` are those of ``estimate_change``.
    """
    baselines = {name: _baseline(name, rounds) for name in upgrade_rules()}
    comparisons = []
    for name in upgrade_rules():
        figures = [figures[name] for figures in rounds if name in figures]
        if figures:
            tolerance = tolerance_of(name, tolerances, baselines)
            quantity = QUANTITIES[name]
            usable = sum(_counts(name, figure) for figure in figures)
            counting = _counting(name, figures)
            undecided = Comparison(
                quantity=name,
                a=median([figure.a for figure in counting]),
                b=median([figure.b for figure in counting]),
                unit=quantity.unit,
                tolerance=tolerance.share,
                least_change=tolerance.least_change,
                asked=tolerance.asked,
                gate=name in gates,
                replicates=len(figures),
                of="rounds",
                lacking=_missing(quantity, figures, usable, span),
            )
            decided = _decide(undecided, _usable(name, rounds, orders, span.least), span)
            comparisons.append(_one_sign(decided))
    return comparisons


def _one_sign(compared: Comparison) -> Comparison:
    """Return a comparison that is IMPROVED only where its own medians say so, too."""
    worse = QUANTITIES[compared.quantity].sign * (compared.b - compared.a)
    if compared.verdict is Verdict.IMPROVED and worse > 0:
        return compared.but(verdict=Verdict.PASSED)
    return compared


class QuantityTolerance(NamedTuple):
    """A tolerance as a share, and the change that it stands for where that decided it.

    ``asked`` is the narrower share that was asked for, None where that is the tolerance.
    """

    share: float
    least_change: float = 0.0
    asked: float | None = None


def tolerance_of(
    name: str, tolerances: Mapping[str, float], baselines: Mapping[str, float]
) -> QuantityTolerance:
    """Return the tolerance of a quantity: at least the least change that is judged.

    ``baselines`` are what A has, by quantity. By default times and throughput have at least the
    tolerance of latency.
    """
    own = _own_tolerance(name, tolerances, baselines)
    if name in tolerances or QUANTITIES[name].unit == "B":
        return own
    of_latency = _own_tolerance("latency", tolerances, baselines)
    return own if own.share >= of_latency.share else of_latency._replace(asked=own.share)


def _own_tolerance(
    name: str, tolerances: Mapping[str, float], baselines: Mapping[str, float]
) -> QuantityTolerance:
    rule = upgrade_rules()[name]
    share = tolerances.get(name, rule.tolerance)
    baseline = baselines.get(name, 0.0)
    if baseline * share >= rule.least_change or not baseline:
        return QuantityTolerance(share)
    return QuantityTolerance(rule.least_change / baseline, rule.least_change, share)


def _baseline(name: str, rounds: Sequence[Mapping[str, Figure]]) -> float:
    figures = [each[name] for each in rounds if name in each]
    values = [figure.a for figure in _counting(name, figures)]
    return median(values) if values else 0.0


def _counting(name: str, figures: Sequence[Figure]) -> Sequence[Figure]:
    """Return the figures that say something of a quantity; all of them where none does."""
    return [figure for figure in figures if _counts(name, figure)] or figures


def _counts(name: str, figure: Figure) -> bool:
    """Return whether a round says something of a quantity; a percentile takes so many calls."""
    percent = QUANTITIES[name].percent
    has_calls = percent is None or figure.calls >= samples_for_percentile(percent)
    return has_calls and math.isfinite(figure.error)


class _Usable(NamedTuple):
    """The logs of how much worse B is in those rounds that say something of it, with orders."""

    changes: Sequence[float]
    orders: Sequence[int]


def _usable(
    name: str, rounds: Sequence[Mapping[str, Figure]], orders: Sequence[int], least: int
) -> _Usable:
    """Return what counts; where that is too little for a decision, all that gives an estimate."""
    sign = QUANTITIES[name].sign
    is_enough = sum(name in each and _counts(name, each[name]) for each in rounds) >= least
    changes = []
    kept: list[int] = []
    for index, figures in enumerate(rounds):
        figure = figures.get(name)
        if figure is None or not math.isfinite(figure.error):
            continue
        if _counts(name, figure) or not is_enough:
            changes.append(sign * figure.value)
            kept += orders[index : index + 1]
    return _Usable(changes, kept)


def _decide(undecided: Comparison, usable: _Usable, span: RoundSpan) -> Comparison:
    """Return the comparison with its interval, and the verdict that follows from it."""
    if not usable.changes:
        return undecided
    sign = QUANTITIES[undecided.quantity].sign  # -1 turns how much worse B is into B / A
    found = estimate_change(usable.changes, span, usable.orders)
    limit = math.log1p(undecided.tolerance)
    verdict = verdict_of_interval(found.low, found.high, limit)
    count = len(usable.changes)
    lacking = undecided.lacking
    if not lacking and verdict is Verdict.REGRESSED and count < span.to_fail:
        lacking = f"needs {span.to_fail} rounds to fail, had {count}"
    if lacking:
        verdict = Verdict.INCONCLUSIVE
    ends = [exp_of(sign * found.low), exp_of(sign * found.high)]
    return undecided.but(
        lacking=lacking,
        low=min(ends),
        ratio=math.exp(sign * found.mean),
        high=max(ends),
        verdict=verdict,
        floor=exp_of(found.mean - found.low) - 1,
        detectable=exp_of(limit + found_above(found.error, count, span, _POWER)) - 1,
    )


def verdict_of_interval(low: float, high: float, limit: float) -> Verdict:
    """Decide by an interval of the log of how much worse B is, and the limit of that."""
    if low > limit:
        return Verdict.REGRESSED
    if high < -limit:
        return Verdict.IMPROVED
    if high < limit:
        return Verdict.PASSED
    return Verdict.INCONCLUSIVE


def _missing(quantity: Quantity, figures: Sequence[Figure], usable: int, span: RoundSpan) -> str:
    """Return the reason why nothing can be decided, "" for none."""
    if quantity.percent is not None and usable < span.least:
        needed = samples_for_percentile(quantity.percent)
        fewest = min(figure.calls for figure in figures)
        if fewest < needed:
            return f"needs {needed} calls a round, had {fewest}"
    if not usable and quantity.under_load:
        return "no round whose load says anything of it"
    if not usable:
        return "too few pairs, or a clock that stands still or leaps between two readings"
    if usable < span.least:
        return f"needs {span.least} rounds, had {usable}"
    return ""


def compare_accuracy(name: str, right_a: Array, right_b: Array, tolerance: float) -> Comparison:
    """Return the verdict on "top1" or "top5", given for each input whether each side is right.

    REGRESSED where surely more than ``tolerance`` of all inputs were lost, PASSED where surely
    less: by the bounds of the difference of shares. A tolerance of 0 is about these very inputs: it
    is PASSED where none of them was lost.
    """
    count = len(right_a)
    lost = int((right_a & ~right_b).sum())
    won = int((right_b & ~right_a).sum())
    low = -largest_loss(lost, won, count, _BOUND_OF_PASSING)
    high = largest_loss(won, lost, count, _BOUND_OF_FAILING)
    verdict = Verdict.INCONCLUSIVE
    if high < -tolerance:
        verdict = Verdict.REGRESSED
    elif low >= -tolerance or (lost == 0 and tolerance == 0):
        verdict = Verdict.PASSED
    share_a = float(right_a.mean())
    share_b = float(right_b.mean())
    return Comparison(
        quantity=name,
        a=share_a,
        b=share_b,
        unit="fraction",
        tolerance=tolerance,
        gate=False,
        replicates=count,
        of="inputs",
        ratio=share_b - share_a,
        low=low,
        high=high,
        verdict=verdict,
    )


_OF_CALLS = ("stalls", "slow_inputs")


def is_decided(comparisons: Sequence[Comparison], rounds: int, least: int = ROUNDS.least) -> bool:
    """Return whether no further round is needed.

    This is so where the outputs are wrong or B meets a limit at no rate, and otherwise once all
    gates are decided, or calls of many rounds decided the item. If gates passed, a guard that looks
    worse than its tolerance needs further rounds, too.
    """
    of_rounds = [compared for compared in comparisons if compared.of == "rounds"]
    of_calls = [compared for compared in comparisons if compared.quantity in _OF_CALLS]
    at_once = [one for one in comparisons if one not in of_rounds and one not in of_calls]
    if any(compared.verdict is Verdict.REGRESSED for compared in at_once):
        return True
    if rounds < least:
        return False
    if any(compared.verdict is Verdict.REGRESSED for compared in of_calls):
        return True
    if not are_gates_decided(comparisons):
        return False
    if any(compared.verdict is Verdict.REGRESSED for compared in of_rounds):
        return True
    return not any(_is_suspect(compared) for compared in [*of_rounds, *of_calls])


def are_gates_decided(comparisons: Sequence[Comparison]) -> bool:
    """Return whether all gates that rounds decide, or their calls, are decided."""
    gates = [one for one in comparisons if one.of in ("rounds", "calls") and one.gate]
    return all(compared.verdict is not Verdict.INCONCLUSIVE for compared in gates)


def _is_suspect(compared: Comparison) -> bool:
    """Return whether a quantity is open, but its estimate is beyond its tolerance.

    Its distance from no change is also more than that to the end of its interval, so that much
    noise alone makes none suspect.
    """
    if compared.verdict is not Verdict.INCONCLUSIVE or not compared.ratio > 0:
        return False
    if compared.quantity == "stalls":  # which are compared only where they are suspect, or a gate
        return True
    sign = QUANTITIES[compared.quantity].sign
    worse = sign * math.log(compared.ratio)
    farthest = compared.high
    if sign < 0:
        farthest = 1 / compared.low if compared.low > 0 else math.inf
    return worse > math.log1p(compared.tolerance) and 2 * worse > math.log(farthest)


def verdict_of(comparisons: Sequence[Comparison]) -> Verdict:
    """Return the verdict of the item.

    It is REGRESSED where any quantity is, INCONCLUSIVE where a gate is or where there is no gate,
    and otherwise the verdict on latency, or on that of queries where it is the gate.
    """
    if any(compared.verdict is Verdict.REGRESSED for compared in comparisons):
        return Verdict.REGRESSED
    gates = {compared.verdict for compared in comparisons if compared.gate}
    if not gates or Verdict.INCONCLUSIVE in gates:
        return Verdict.INCONCLUSIVE
    main = main_comparison(comparisons)
    return main.verdict if main is not None and main.gate else Verdict.PASSED


RISK_OF_CALLS = 0.0015
"""Of calling a B that stalls as much more often as is allowed REGRESSED, at each look."""

_SUSPECT_CHANCE = 0.25  # probability by chance below which a candidate is worth more rounds
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
    of_calls = binomial_bounds(hits_b, hits_a + hits_b, RISK_OF_CALLS, span.risk_of_passing)
    low = min(_odds(of_calls.low), exp_of(of_rounds.low))
    high = max(_odds(of_calls.high), exp_of(of_rounds.high))
    is_rare = hits_b == 0 and count >= samples_for_percentile(_SEEN)
    verdict = Verdict.INCONCLUSIVE
    if len(figures) >= span.to_fail and low > 1 + allowed:
        verdict = Verdict.REGRESSED
    elif len(figures) >= span.least and (high < 1 + allowed or is_rare):
        verdict = Verdict.PASSED
    if tolerance is None and (verdict is Verdict.PASSED or chance > _SUSPECT_CHANCE):
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
