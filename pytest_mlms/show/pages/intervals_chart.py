"""Charts of accuracy: intervals against limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from markupsafe import Markup

from pytest_mlms.core.records import Verdict
from pytest_mlms.keep.results.line import EstimateRecord, LimitRecord
from pytest_mlms.show.pages.canvas import Plot
from pytest_mlms.show.pages.estimates import (
    add_estimate,
    add_limit,
    ends_of,
    estimate_words,
    is_shown,
    limit_words,
)
from pytest_mlms.show.pages.numbers import limit_text, quantity_label
from pytest_mlms.show.pages.scales import Axis, TickText, linear_scale, rows_axis, short_value

_WORST_FIRST = list(Verdict)


def intervals_charts(
    estimates: Mapping[str, EstimateRecord], limits: Sequence[LimitRecord]
) -> list[tuple[str, Markup]]:
    """Return a chart for each unit, with its caption: values, intervals, and the limits on them."""
    charts = []
    for unit, shown in _by_unit(estimates).items():
        bounds = [limit for limit in limits if limit.quantity in shown]
        chart = _intervals(unit, shown, bounds)
        charts.append((_caption(unit, bounds), chart))
    return charts


def _by_unit(estimates: Mapping[str, EstimateRecord]) -> Mapping[str, Mapping[str, EstimateRecord]]:
    by_unit: dict[str, dict[str, EstimateRecord]] = {}
    for name, estimate in estimates.items():
        if is_shown(estimate):
            by_unit.setdefault(estimate.unit, {})[name] = estimate
    return by_unit


def _caption(unit: str, limits: Sequence[LimitRecord]) -> str:
    """Return the limits in words, each with the line that set it."""
    if not limits:
        return "no limits on these"
    worst_first = sorted(limits, key=lambda limit: _WORST_FIRST.index(limit.verdict))
    return "; ".join(_limit_caption(limit, unit) for limit in worst_first)


def _limit_caption(limit: LimitRecord, unit: str) -> str:
    name = quantity_label(limit.quantity)
    return f"{limit.verdict.value}: {name} {limit_text(limit, unit)}, set in {limit.place}"


def _intervals(
    unit: str, shown: Mapping[str, EstimateRecord], limits: Sequence[LimitRecord]
) -> Markup:
    label = "; ".join(estimate_words(name, shown[name]) for name in shown)
    bounds = [limit.value for limit in limits]
    scale = linear_scale(bounds + ends_of(shown.values()))
    names = list(shown)
    rows = rows_axis(list(map(quantity_label, names)))
    plot = Plot(label, Axis("", scale, _rounded(unit)), rows)
    for limit in limits:
        row = names.index(limit.quantity)
        add_limit(plot, row, limit, limit_words(limit, unit))
    for row, name in enumerate(names):
        add_estimate(plot, row, name, shown[name])
    return plot.svg()


def _rounded(unit: str) -> TickText:
    """Return the text of a tick; sums of floats end in 0.30000000000000004."""
    text = short_value(unit)
    return lambda value: text(round(value, 9))
