"""The decision on groups of inputs: the mix may hide what got worse for one of its shapes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import NamedTuple

from pytest_mlms.core.records import Comparison, InputGroup, Verdict
from pytest_mlms.core.statistics import pool_rounds
from pytest_mlms.decide.upgrade.criteria import Criteria
from pytest_mlms.decide.upgrade.decision import verdict_of_interval
from pytest_mlms.decide.upgrade.figures import Figure
from pytest_mlms.decide.upgrade.round_estimate import ROUNDS, RoundSpan, exp_of
from pytest_mlms.measure.evaluate.timed_inputs import Mix


class GroupDecision(NamedTuple):
    """The verdict on the group that got worst, and a row for each group."""

    worst: Comparison
    groups: Sequence[InputGroup]


def compare_groups(
    mix: Mix,
    rounds: Sequence[Mapping[str, Figure]],
    latency: Comparison,
    gate: bool,
    span: RoundSpan = ROUNDS,
) -> GroupDecision | None:
    """Return the decision on groups; None where no group has two rounds.

    ``rounds`` has the latency of each group that a round timed, and the tolerance is that of
    ``latency``. A group is REGRESSED by Holm's procedure (1979, Scandinavian Journal of Statistics
    6:65): the risk is divided by the number of groups that are not yet shown to be worse. The worst
    one is PASSED where every group of the mix is shown to be within the tolerance.
    """
    found: dict[str, list[Figure]] = {}
    for name in mix.names:
        figures = [of_round[name] for of_round in rounds if name in of_round]
        if len(figures) >= 2:
            found[name] = figures
    if not found:
        return None
    limit = math.log1p(latency.tolerance)
    risks = _risks(found, limit, span.risk_of_failing)
    groups = []
    for name, share in zip(*mix, strict=True):
        if name in found:
            groups.append(_group(name, share, found[name], limit, risks[name], span))
    worst = max(groups, key=lambda group: (group.verdict is Verdict.REGRESSED, group.ratio or 0.0))
    compared = _worst(worst, groups, latency, gate, len(found[worst.name]))
    untimed = [name for name in mix.names if name not in found]
    if untimed and compared.verdict is Verdict.PASSED:
        lacking = f"inputs of shape {untimed[0]} were timed in less than two rounds"
        compared = compared.but(verdict=Verdict.INCONCLUSIVE, lacking=lacking)
    return GroupDecision(compared, groups)


def groups_beside(
    of_rounds: Iterable[Comparison],
    mix: Mix,
    rounds: Sequence[Mapping[str, Figure]],
    tolerances: Mapping[str, float],
    terms: Criteria,
) -> GroupDecision | None:
    """Return the decision on groups beside that on the latency of all; None without either.

    ``tolerances`` override the default, which is that of latency.
    """
    for compared in of_rounds:
        if compared.quantity == "latency":
            tolerance = tolerances.get("group_latency", compared.tolerance)
            latency = compared.but(tolerance=tolerance)
            return compare_groups(
                mix, rounds, latency, "group_latency" in terms.gates, terms.rounds
            )
    return None


def _risks(found: Mapping[str, Sequence[Figure]], limit: float, risk: float) -> dict[str, float]:
    """Return the risk of failing of each group, by Holm: the largest excess has the smallest."""
    distances = {}
    for name, figures in found.items():
        pooled = pool_rounds([figure.value for figure in figures])
        excess = pooled.mean - limit
        distances[name] = excess / pooled.error if pooled.error else math.copysign(math.inf, excess)
    ordered = sorted(distances, key=distances.__getitem__, reverse=True)
    risks: dict[str, float] = {}
    left = len(ordered)
    for name in ordered:
        risks[name] = risk / left
        pooled = pool_rounds([figure.value for figure in found[name]])
        left -= pooled.below(risks[name]) > limit
    return risks


def _group(
    name: str,
    share: float,
    figures: Sequence[Figure],
    limit: float,
    risk: float,
    span: RoundSpan,
) -> InputGroup:
    pooled = pool_rounds([figure.value for figure in figures])
    low = pooled.below(risk)
    high = pooled.above(span.risk_of_passing)
    verdict = verdict_of_interval(low, high, limit)
    needed = span.to_fail if verdict is Verdict.REGRESSED else span.least
    if len(figures) < needed:
        verdict = Verdict.INCONCLUSIVE
    baseline = median(figure.a for figure in figures)
    latency = median(figure.b for figure in figures)
    low, ratio, high = map(exp_of, (low, pooled.mean, high))
    calls = sum(figure.calls for figure in figures)
    return InputGroup(name, share, latency, low, high, calls, baseline, ratio, verdict)


def _worst(
    worst: InputGroup, groups: Iterable[InputGroup], latency: Comparison, gate: bool, rounds: int
) -> Comparison:
    verdict = worst.verdict or Verdict.INCONCLUSIVE
    within = (Verdict.PASSED, Verdict.IMPROVED)
    if verdict is not Verdict.REGRESSED:
        are_within = all(group.verdict in within for group in groups)
        verdict = Verdict.PASSED if are_within else Verdict.INCONCLUSIVE
    return Comparison(
        quantity="group_latency",
        a=worst.baseline or math.nan,
        b=worst.latency,
        unit="s",
        tolerance=latency.tolerance,
        gate=gate,
        replicates=rounds,
        of="rounds",
        ratio=worst.ratio or math.nan,
        low=worst.low,
        high=worst.high,
        verdict=verdict,
        about=f"inputs of shape {worst.name}, {100 * worst.share:.2g} % of all",
    )
