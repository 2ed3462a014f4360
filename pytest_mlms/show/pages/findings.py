"""Findings: the limits and tolerances that decided an item, each as a person reads it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pytest_mlms.core.quantities import QUANTITIES
from pytest_mlms.core.records import Comparison, Verdict
from pytest_mlms.decide.upgrade.labels import (
    difference_label,
    format_change,
    is_told,
    percent,
    widening_label,
    worst_change,
)
from pytest_mlms.show.pages.item import ItemView
from pytest_mlms.show.pages.numbers import (
    distance_text,
    interval_text,
    limit_text,
    more_or_less,
    quantity_label,
    unit_of,
    value_text,
)

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

    A quantity that would only fail where it is surely worse is left out while it is open and not
    to be told.
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
    for compared in item.comparisons:
        is_open_guard = compared.verdict is Verdict.INCONCLUSIVE and not compared.gate
        if is_open_guard and not is_told(compared):
            continue
        place = _place_of(compared, item)
        yield Finding(
            quantity=quantity_label(compared.quantity),
            verdict=compared.verdict,
            measured=_measured(compared),
            bound=_bound(compared, is_default=item.terms is not None and not place),
            distance=_change(compared),
            place=place,
            reason=compared.lacking,
        )


def _place_of(compared: Comparison, item: ItemView) -> str:
    """Return what set a tolerance; "" for a default.

    Other times and throughput have the tolerance of latency where that is wider than their own.
    """
    places = item.terms.places if item.terms else {}
    own = places.get(compared.quantity, "")
    if own or compared.of != "rounds":
        return own
    of_latency = [each.tolerance for each in item.comparisons if each.quantity == "latency"]
    return places.get("latency", "") if compared.tolerance in of_latency else ""


def _bound(compared: Comparison, is_default: bool) -> str:
    if compared.of == "processes":  # that fail, for which there is no tolerance
        return ""
    default = "default " if is_default else ""
    if compared.quantity == "agreement":
        return f"{default}relative tolerance {percent(compared.tolerance)}"
    return f"{default}tolerance {tolerance_text(compared)}"


def _change(compared: Comparison) -> str:
    """Return the change of a ratio from A to B, as its tolerance is written; "" for others."""
    if compared.of != "rounds" or math.isnan(compared.ratio):
        return ""
    return f"is {more_or_less(compared.ratio)}"


def _measured(compared: Comparison) -> str:
    """Return both values of a comparison, and B over A with its interval."""
    if compared.of == "outputs":
        return difference_label(compared)
    a = value_text(compared.a, compared.unit)
    b = value_text(compared.b, compared.unit)
    sides = "" if math.isnan(compared.a) or math.isnan(compared.b) else f"{a} → {b}"
    change = ""
    if not math.isnan(compared.ratio):
        change = format_change(compared)
        if compared.of == "rounds" and math.isinf(compared.high):
            change = f"×{compared.ratio:.3f}"
    return ", ".join(part for part in (sides, change) if part)


def tolerance_text(compared: Comparison) -> str:
    """Return the tolerance of a comparison, and the direction that it bounds."""
    known = QUANTITIES.get(compared.quantity)
    direction = "less" if known is not None and known.better == "higher" else "more"
    share = percent(compared.tolerance)
    allowed = percent(abs(worst_change(compared)))
    if allowed != share:
        share = f"{share}, which is {allowed}"
    return f"{share} {direction}{widening_label(compared)}"
