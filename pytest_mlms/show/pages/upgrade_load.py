"""An upgrade under load: its rounds, and its queries or the rates that were tried for a peak."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from markupsafe import Markup

from pytest_mlms.core.quantities import QUANTITIES
from pytest_mlms.core.records import Comparison
from pytest_mlms.core.units import format_quantity
from pytest_mlms.decide.upgrade.labels import percent, worst_change
from pytest_mlms.decide.upgrade.round_record import PeakRecord
from pytest_mlms.show.pages.canvas import Context, Figure, Plot
from pytest_mlms.show.pages.item import ItemView
from pytest_mlms.show.pages.latency import distributions_chart, query_distributions
from pytest_mlms.show.pages.numbers import quantity_label
from pytest_mlms.show.pages.scales import (
    Axis,
    linear_scale,
    log_scale,
    percent_of,
    short_value,
    signed_number,
)
from pytest_mlms.show.pages.upgrade import rounds_axis

_NAMES = {
    "query_latency": "Change of the percentile of the queries' latencies",
    "query_rate": "Change of the rate of queries that were done",
    "peak_rate": "Change of the peak, the rate at which the percentile is at its limit,",
}
_LEGEND = {"b": "round", "muted": "round that doesn't count"}


class RoundChange(NamedTuple):
    """The change of a quantity in a round: its number, log(B / A), and whether it counts."""

    number: int
    log_ratio: float
    counts: bool = True

    @property
    def percent(self) -> float:
        """The change from A to B in percent."""
        return percent_of(self.log_ratio)

    @property
    def paint(self) -> str:
        """The paint of its dot."""
        return "b" if self.counts else "muted"


def queries_section(item: ItemView) -> Context | None:
    """Return the change of queries in each round, and their latencies or the rates tried."""
    figures = []
    for compared in item.comparisons:
        known = QUANTITIES.get(compared.quantity)
        changes = _changes_of(item, compared)
        if known is not None and known.under_load and changes:
            name = _NAMES.get(compared.quantity, f"Change of {compared.quantity}")
            caption = f"{name} in each round; a band is the interval of the mean"
            figures.append(Figure(caption, load_rounds_chart(compared, changes)))

    limit = item.load.latency if item.load is not None else None
    percentile = "percentile" if item.load is None else f"p{item.load.percentile:g}"
    peaks = [each.peaks for each in item.rounds if each.peaks]
    if peaks and limit:
        caption = "The percentile of the queries' latencies at each rate that was tried"
        figures.append(Figure(caption, rates_chart(peaks, limit, percentile)))
    sides = [] if peaks else query_distributions(item)
    if sides:
        limits = {}
        if limit:
            limits[f"limit on {percentile}: {format_quantity(limit, 's')}"] = limit
        caption = "Latency of the queries of both sides, as a cumulative distribution"
        figures.append(Figure(caption, distributions_chart(sides, ("a", "b"), limits, "queries")))
    return {"figures": figures} if figures else None


def _changes_of(item: ItemView, compared: Comparison) -> Sequence[RoundChange]:
    found = []
    for number, each in enumerate(item.rounds, 1):
        figure = each.figures.get(compared.quantity, ())
        if len(figure) >= 4 and figure[2] is not None:
            found.append(RoundChange(number, figure[2], counts=figure[3] is not None))
    return found


def load_rounds_chart(compared: Comparison, rounds: Sequence[RoundChange]) -> Markup:
    """Return the change in each round, over the interval of their mean, with the tolerance."""
    name = quantity_label(compared.quantity)
    limit = 100 * worst_change(compared)
    low, high = (100 * (end - 1) for end in (compared.low, compared.high))
    has_interval = compared.low > 0 and math.isfinite(compared.high)
    values = [0.0, limit, *[each.percent for each in rounds]]
    if has_interval:
        values += [low, high]
    last = max(each.number for each in rounds)
    words = ", ".join(f"{each.percent:+.1f} %" for each in rounds)
    plot = Plot(
        f"change of {name} in each round: {words}",
        rounds_axis(last),
        Axis(f"change of {name}, %", linear_scale(values), signed_number),
    )
    if has_interval:
        title = f"interval of the mean: {low:+.1f} to {high:+.1f} %"
        plot.bar((0.5, last + 0.5), (low, high), "grid", title)
        plot.legend(title, "grid")
    plot.horizontal(0.0, "muted", dashed=False)
    plot.horizontal(limit, "bad", f"tolerance {percent(compared.tolerance)}")
    for each in rounds:
        note = "" if each.counts else ", doesn't count"
        title = f"round {each.number}: {each.percent:+.2f} %{note}"
        plot.dot(each.number, each.percent, each.paint, title, radius=4.5)
    for paint, name in _LEGEND.items():
        if any(each.paint == paint for each in rounds):
            plot.legend(name, paint)
    return plot.svg()


def rates_chart(peaks: Sequence[Mapping[str, PeakRecord]], limit: float, percentile: str) -> Markup:
    """Return the percentile at each rate that was tried for the peaks of both sides, in all rounds.

    ``limit`` is in seconds.
    """
    tried: dict[str, list[tuple[float, float]]] = {"a": [], "b": []}
    for side, points in tried.items():
        for each in peaks:
            if side in each:
                points += [(one.rate, one.latency) for one in each[side].tried]
    rates = [rate for points in tried.values() for rate, _ in points]
    latencies = [latency for points in tried.values() for _, latency in points]
    limit_text = f"limit {format_quantity(limit, 's')}"
    plot = Plot(
        f"{percentile} of the latencies at {len(rates)} runs of load, {limit_text}",
        Axis("queries a second, logarithmic", log_scale(rates), short_value("/s")),
        Axis(f"{percentile}, logarithmic", log_scale([*latencies, limit]), short_value("s")),
    )
    plot.horizontal(limit, "bad", limit_text)
    for side, points in tried.items():
        for rate, latency in points:
            title = f"{side.upper()} at {rate:.4g} /s: {format_quantity(latency, 's')}"
            plot.dot(rate, latency, side, title)
        plot.legend(f"run of load on {side.upper()}", side)
    return plot.svg()
