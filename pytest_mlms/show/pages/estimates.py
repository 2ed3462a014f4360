"""Estimates as rows of charts: values with their intervals, and the limits on them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from pytest_mlms.core.records import Verdict
from pytest_mlms.keep.results.line import EstimateRecord, LimitRecord
from pytest_mlms.show.pages.canvas import Context, Figure, Plot
from pytest_mlms.show.pages.item import ItemView
from pytest_mlms.show.pages.numbers import estimate_text, limit_text, quantity_label
from pytest_mlms.show.pages.scales import Axis, TickText, linear_scale, rows_axis, short_value

_PAINTS = {Verdict.PASSED: "good", Verdict.INCONCLUSIVE: "warn"}
_WORST_FIRST = list(Verdict)


def is_shown(estimate: EstimateRecord) -> bool:
    """Return whether an estimate has a value that can be judged."""
    return estimate.value is not None and not estimate.lacking


def ends_of(estimates: Iterable[EstimateRecord]) -> list[float]:
    """Return the values of estimates, and the ends of their intervals that are bounded."""
    ends = []
    for estimate in estimates:
        ends += [estimate.value, estimate.low, estimate.high]
    return [end for end in ends if end is not None]


def add_estimate(plot: Plot, row: int, name: str, estimate: EstimateRecord) -> None:
    """Add a value with its interval; ends that aren't bounded are those of the chart."""
    low = -math.inf if estimate.low is None else estimate.low
    high = math.inf if estimate.high is None else estimate.high
    if estimate.value is not None:
        plot.estimate(estimate.value, (low, high), row, "b", _in_words(name, estimate))


def _in_words(name: str, estimate: EstimateRecord) -> str:
    return f"{quantity_label(name)}: {estimate_text(estimate)}"


def add_limit(plot: Plot, row: int, limit: LimitRecord, unit: str, place: str = "") -> None:
    """Add a limit in the colour of its verdict; ``place`` ends its tooltip."""
    title = f"limit on {quantity_label(limit.quantity)}: {limit_text(limit, unit)}{place}"
    plot.mark(limit.value, row, _PAINTS.get(limit.verdict, "bad"), title)


def intervals_section(item: ItemView) -> Context | None:
    """Return the estimates of an item with their limits."""
    figures = intervals_figures(item.estimates, item.limits)
    return {"figures": figures} if figures else None


def intervals_figures(
    estimates: Mapping[str, EstimateRecord], limits: Sequence[LimitRecord]
) -> list[Figure]:
    """Return a chart for each unit: values with their intervals, and the limits on them.

    Captions have the limits, each with the line that set it.
    """
    by_unit: dict[str, dict[str, EstimateRecord]] = {}
    for name, estimate in estimates.items():
        if is_shown(estimate):
            by_unit.setdefault(estimate.unit, {})[name] = estimate

    figures = []
    for unit, shown in by_unit.items():
        names = list(shown)
        bounds = [limit for limit in limits if limit.quantity in shown]
        scale = linear_scale([limit.value for limit in bounds] + ends_of(shown.values()))
        plot = Plot(
            "; ".join(_in_words(name, shown[name]) for name in names),
            Axis("", scale, _rounded(unit)),
            rows_axis([quantity_label(name) for name in names]),
        )
        for limit in bounds:
            add_limit(plot, names.index(limit.quantity), limit, unit)
        for row, name in enumerate(names):
            add_estimate(plot, row, name, shown[name])

        captions = []
        for limit in sorted(bounds, key=lambda limit: _WORST_FIRST.index(limit.verdict)):
            bound = f"{quantity_label(limit.quantity)} {limit_text(limit, unit)}"
            captions.append(f"{limit.verdict.value}: {bound}, set in {limit.place}")
        figures.append(Figure("; ".join(captions) or "no limits on these", plot.svg()))
    return figures


def _rounded(unit: str) -> TickText:
    """Return the text of a tick; sums of floats end in 0.30000000000000004."""
    text = short_value(unit)
    return lambda value: text(round(value, 9))
