"""Comparison of two hosts as the two sides of an upgrade, such as hosts with different drivers.

This is the weaker design: nothing is paired, and any other difference between the hosts is in the
difference between the sides. Each case is measured in several visits to a side, far apart in time.
The scatter of the visits is the drift of a host, and the noise that a change must exceed. All
functions are pure. docs/distribution.md says more.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from types import MappingProxyType
from typing import Any, NamedTuple

from pytest_mlms.core.quantities import QUANTITIES, upgrade_rules
from pytest_mlms.core.records import Comparison, Verdict
from pytest_mlms.core.statistics import student_quantile
from pytest_mlms.decide.upgrade.decision import (
    RISK_OF_FAILING,
    RISK_OF_PASSING,
    QuantityTolerance,
    tolerance_of,
    verdict_of_interval,
)
from pytest_mlms.provide.stacks.labels import label_of


class Visit(NamedTuple):
    """The measurements of a case in one visit to a side.

    ``side`` is a label such as gpu=new-driver. ``values`` are in base units, by quantity, and
    ``counters`` name what told those that several counters may tell.
    """

    case: str
    side: str
    values: Mapping[str, float]
    counters: Mapping[str, str] = MappingProxyType({})


class _Drift(NamedTuple):
    """The scatter of the visits to one side: variance of the log, and its degrees of freedom."""

    variance: float
    freedom: int


class _Side(NamedTuple):
    """One side of a case: the log of each visit's value, and the drift of its host."""

    logs: Sequence[float]
    drift: _Drift

    @property
    def mean(self) -> float:
        return fmean(self.logs)

    @property
    def variance(self) -> float:
        """The variance of the mean."""
        return self.drift.variance / len(self.logs)


def read_visit(result: Mapping[str, Any]) -> Visit | None:
    """Return the visit of a side that an item's line of results is, None for other items."""
    stack = result["stack"]["name"]
    label = label_of(stack)
    if label is None:
        return None
    if result["kind"] != "performance":
        return None
    estimates = result.get("estimates") or {}
    values = {}
    counters = {}
    for quantity, rule in upgrade_rules().items():
        estimate = estimates.get(rule.estimate) or {}
        value = estimate.get("value")
        if value is not None and value + rule.base > 0 and not estimate.get("lacking"):
            values[quantity] = value
            if estimate.get("counter"):
                counters[quantity] = estimate["counter"]
    case = result["nodeid"].replace(stack, "*")
    side = "=".join(label)
    return Visit(case, side, values, counters)


def compare_sides(
    visits: Iterable[Visit],
    a: str,
    b: str,
    tolerances: Mapping[str, float],
    gates: Iterable[str] = (),
) -> dict[str, list[Comparison]]:
    """Return for each case that both sides measured how B differs from A in each quantity.

    ``a`` and ``b`` are labels. ``tolerances`` override the defaults, which are those of upgrades.
    What the ``gates`` name is INCONCLUSIVE where a side has no value of it.

    The difference is that of the means of the logs over visits. Its variance is that of the hosts'
    drifts, each pooled over all cases of its side (Welch 1947, Biometrika 34:28).
    """
    visits = list(visits)
    found: dict[str, list[Comparison]] = {}
    sides_a = {name: _sides(visits, a, name) for name in upgrade_rules()}
    for quantity, of_cases in sides_a.items():
        sides_b = _sides(visits, b, quantity)
        for case, side_a in of_cases.items():
            if case not in sides_b:
                continue
            names = [name for name in (quantity, "latency") if case in sides_a[name]]
            baselines = {name: _value(name, sides_a[name][case]) for name in names}
            tolerance = tolerance_of(quantity, tolerances, baselines)
            comparison = _compare(quantity, side_a, sides_b[case], tolerance)
            of_case = [visit for visit in visits if visit.case == case and visit.side in (a, b)]
            found.setdefault(case, []).append(_by_one_counter(comparison, of_case))
    judged = {name for name, rule in upgrade_rules().items() if rule.estimate}
    for compared in found.values():
        missing = judged.intersection(gates).difference(each.quantity for each in compared)
        compared += [
            Comparison(
                quantity=name,
                a=math.nan,
                b=math.nan,
                unit=QUANTITIES[name].unit,
                tolerance=tolerances[name],
                gate=True,
                replicates=0,
                of="visits",
                lacking="not measured on both sides",
            )
            for name in sorted(missing)
        ]
    return dict(sorted(found.items()))


def _by_one_counter(compared: Comparison, visits: Iterable[Visit]) -> Comparison:
    """Return a comparison, open where counters of different meaning told its values."""
    counters = {visit.counters.get(compared.quantity, "") for visit in visits}
    if len(counters) == 1:
        return compared
    text = f"told by {' and '.join(sorted(counters))}, which count different things"
    unknown = compared.but(ratio=math.nan, low=-math.inf, high=math.inf, floor=math.nan)
    return unknown.but(verdict=Verdict.INCONCLUSIVE, lacking=text)


def _value(quantity: str, side: _Side) -> float:
    """Return the geometric mean over the visits."""
    return max(0.0, math.exp(side.mean) - upgrade_rules()[quantity].base)


def _sides(visits: Iterable[Visit], label: str, quantity: str) -> dict[str, _Side]:
    """Return one side of a quantity by case."""
    base = upgrade_rules()[quantity].base
    logs: dict[str, list[float]] = {}
    for visit in visits:
        value = visit.values.get(quantity)
        if visit.side != label or value is None:
            continue
        log = math.log(value + base)
        of_case = logs.setdefault(visit.case, [])
        of_case.append(log)
    drift = _pooled_drift(logs.values())
    sides = {}
    for case, of_case in logs.items():
        sides[case] = _Side(of_case, drift)
    return sides


def _pooled_drift(groups: Iterable[Sequence[float]]) -> _Drift:
    """Return the scatter within groups; its variance is infinite where no group has two values."""
    freedom = 0
    squares = 0.0
    for group in groups:
        mean = fmean(group)
        freedom += len(group) - 1
        for value in group:
            squares += (value - mean) ** 2
    if freedom == 0:
        return _Drift(math.inf, freedom)
    return _Drift(squares / freedom, freedom)


def _compare(quantity: str, a: _Side, b: _Side, tolerance: QuantityTolerance) -> Comparison:
    visits = min(len(a.logs), len(b.logs))
    undecided = Comparison(
        quantity=quantity,
        a=_value(quantity, a),
        b=_value(quantity, b),
        unit=QUANTITIES[quantity].unit,
        tolerance=tolerance.share,
        least_change=tolerance.least_change,
        asked=tolerance.asked,
        gate=True,
        replicates=visits,
        of="visits",
    )
    if math.isinf(a.variance + b.variance):
        return undecided.but(lacking="needs 2 visits of each side")
    sign = QUANTITIES[undecided.quantity].sign
    variance = a.variance + b.variance
    error = math.sqrt(variance)
    freedom = _welch_freedom(a, b)
    below = student_quantile(freedom, 1 - RISK_OF_FAILING)
    above = student_quantile(freedom, 1 - RISK_OF_PASSING)
    worse = sign * (b.mean - a.mean)
    low = worse - below * error
    high = worse + above * error
    limit = math.log1p(undecided.tolerance)
    ends = sorted([sign * low, sign * worse, sign * high])
    return undecided.but(
        low=math.exp(ends[0]),
        ratio=math.exp(ends[1]),
        high=math.exp(ends[2]),
        verdict=verdict_of_interval(low, high, limit),
        floor=math.expm1(worse - low),
    )


def _welch_freedom(a: _Side, b: _Side) -> float:
    """Return the degrees of freedom of a difference of means (Welch and Satterthwaite)."""
    spread = 0.0
    for side in (a, b):
        spread += side.variance**2 / side.drift.freedom
    if spread == 0:
        return 1.0
    variance = a.variance + b.variance
    return variance**2 / spread
