"""Findings: the limits and tolerances that decided an item, each as a person reads it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pytest_mlms.quantities import QUANTITIES
from pytest_mlms.records import Comparison, Verdict
from pytest_mlms.upgrade.labels import difference_label, format_change, percent, widening_label
from pytest_mlms.views.item import ItemView
from pytest_mlms.views.numbers import (
    distance_text,
    interval_text,
    limit_text,
    quantity_label,
    unit_of,
    value_text,
)

__all__ = ["Finding", "findings_of", "judged_of"]

_DECIDED = (Verdict.PASSED, Verdict.IMPROVED, Verdict.SKIPPED)


@dataclass(frozen=True)
class Finding:
    """A limit or a tolerance: what was measured, the bound, how far apart, and set where.

    All but ``verdict`` are texts; those that aren't known are "".
    """

    quantity: str
    verdict: Verdict
    measured: str
    bound: str
    distance: str = ""
    place: str = ""
    reason: str = ""


def findings_of(item: ItemView) -> Sequence[Finding]:
    """Return what decided an item that did not simply pass, the worst first."""
    return [finding for finding in judged_of(item) if finding.verdict not in _DECIDED]


def judged_of(item: ItemView) -> Sequence[Finding]:
    """Return what an item was judged by, the worst first: limits, and tolerances of an upgrade.

    A quantity that would only fail where it is surely worse is left out while it is open.
    """
    found = [*_of_limits(item), *_of_comparisons(item)]
    return sorted(found, key=lambda finding: list(Verdict).index(finding.verdict))


def _of_limits(item: ItemView) -> Iterator[Finding]:
    for limit in item.limits:
        estimate = item.estimates.get(limit.quantity)
        own = item.quantities.get(limit.quantity)
        unit = own.unit if own else unit_of(limit, estimate)
        shown = estimate or own
        value = shown.value if shown else None
        measured = "not measured"
        if shown is not None:
            measured = interval_text(value, shown.low, shown.high, unit)
        yield Finding(
            quantity=quantity_label(limit.quantity),
            verdict=limit.verdict,
            measured=measured,
            bound=f"limit {limit_text(limit, unit)}",
            distance=distance_text(limit, value),
            place=limit.place,
            reason=limit.reason or (estimate.lacking if estimate else ""),
        )


def _of_comparisons(item: ItemView) -> Iterator[Finding]:
    places = item.terms.places if item.terms else {}
    for compared in item.comparisons:
        if compared.verdict is Verdict.INCONCLUSIVE and not compared.gate:
            continue
        yield Finding(
            quantity=quantity_label(compared.quantity),
            verdict=compared.verdict,
            measured=_measured(compared),
            bound=f"tolerance {tolerance_text(compared)}",
            place=places.get(compared.quantity, ""),
            reason=compared.lacking,
        )


def _measured(compared: Comparison) -> str:
    """Return both values of a comparison, and B over A with its interval."""
    if compared.quantity == "agreement":
        return difference_label(compared)
    a = value_text(compared.a, compared.unit)
    b = value_text(compared.b, compared.unit)
    sides = "" if math.isnan(compared.a) or math.isnan(compared.b) else f"{a} → {b}"
    change = "" if math.isnan(compared.ratio) else format_change(compared)
    if change and compared.of == "inputs":
        change = f"{100 * compared.ratio:+.2f} %"
    return ", ".join(part for part in (sides, change) if part)


def tolerance_text(compared: Comparison) -> str:
    """Return the tolerance of a comparison, and the direction that it bounds."""
    if compared.quantity == "agreement":
        return percent(compared.tolerance)
    known = QUANTITIES.get(compared.quantity)
    direction = "less" if known is not None and known.better == "higher" else "more"
    return f"{percent(compared.tolerance)} {direction}{widening_label(compared)}"
