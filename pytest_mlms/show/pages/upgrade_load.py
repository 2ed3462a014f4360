"""Section of an upgrade under load: its rounds, and its queries or the rates that were tried."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pytest_mlms.core.quantities import QUANTITIES
from pytest_mlms.core.records import Comparison
from pytest_mlms.core.units import format_quantity
from pytest_mlms.show.pages.canvas import Figure
from pytest_mlms.show.pages.item import ItemView
from pytest_mlms.show.pages.latency import distributions_chart
from pytest_mlms.show.pages.load_chart import RoundChange, load_rounds_chart, rates_chart
from pytest_mlms.show.pages.samples import query_distributions
from pytest_mlms.show.pages.section import FIGURES, Context, Section


def _queries(item: ItemView) -> Context | None:
    figures = [*_rounds(item), *_rates(item)]
    if not any(each.peaks for each in item.rounds):
        figures += _latencies(item)
    return {"figures": figures} if figures else None


def _rounds(item: ItemView) -> Sequence[Figure]:
    """Return a chart of the rounds for each quantity of queries."""
    found = []
    for compared in item.comparisons:
        known = QUANTITIES.get(compared.quantity)
        changes = _changes_of(item, compared)
        if known is not None and known.under_load and changes:
            caption = f"{_names(compared)} in each round; a band is the interval of the mean"
            found.append(Figure(caption, load_rounds_chart(compared, changes)))
    return found


def _names(compared: Comparison) -> str:
    names = {
        "query_latency": "Change of the percentile of the queries' latencies",
        "query_rate": "Change of the rate of queries that were done",
        "peak_rate": "Change of the peak, the rate at which the percentile is at its limit,",
    }
    return names.get(compared.quantity, f"Change of {compared.quantity}")


def _changes_of(item: ItemView, compared: Comparison) -> Sequence[RoundChange]:
    found = []
    for number, each in enumerate(item.rounds, 1):
        figure = each.figures.get(compared.quantity, ())
        if len(figure) >= 4 and figure[2] is not None:
            found.append(RoundChange(number, figure[2], counts=figure[3] is not None))
    return found


def _rates(item: ItemView) -> Sequence[Figure]:
    """Return a chart of the rates that were tried, where a peak was searched."""
    peaks = [each.peaks for each in item.rounds if each.peaks]
    if not peaks or item.load is None or not item.load.latency:
        return []
    chart = rates_chart(peaks, item.load.latency, _percentile(item))
    return [Figure("The percentile of the queries' latencies at each rate that was tried", chart)]


def _latencies(item: ItemView) -> Sequence[Figure]:
    """Return the distributions of the queries' latencies, where there are any."""
    sides = query_distributions(item)
    if not sides:
        return []
    chart = distributions_chart(sides, ("a", "b"), _limits_of(item), "queries")
    return [Figure("Latency of the queries of both sides, as a cumulative distribution", chart)]


def _limits_of(item: ItemView) -> Mapping[str, float]:
    if item.load is None or not item.load.latency:
        return {}
    limit = item.load.latency
    return {f"limit on {_percentile(item)}: {format_quantity(limit, 's')}": limit}


def _percentile(item: ItemView) -> str:
    return "percentile" if item.load is None else f"p{item.load.percentile:g}"


QUERIES = Section("Queries under load", FIGURES, _queries)
"""The change of queries in each round, and their latencies or the rates that were tried."""
