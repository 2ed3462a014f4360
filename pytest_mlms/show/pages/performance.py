"""Sections of a performance item: its calls by process, and its percentiles with their limits."""

from __future__ import annotations

from collections.abc import Mapping

from pytest_mlms.core.units import format_quantity
from pytest_mlms.show.pages.canvas import Figure
from pytest_mlms.show.pages.item import ItemView
from pytest_mlms.show.pages.latency import distributions_chart, percentiles_chart
from pytest_mlms.show.pages.samples import process_distributions
from pytest_mlms.show.pages.section import FIGURES, Context, Section


def _latency(item: ItemView) -> Context | None:
    figures = []
    percentiles = percentiles_chart(item.estimates, item.limits)
    if percentiles is not None:
        caption = "Mean and percentiles over processes with their intervals; thick marks are limits"
        figures.append(Figure(caption, percentiles))
    distributions = process_distributions(item)
    if distributions:
        chart = distributions_chart(distributions, limits=_limits_of(item))
        figures.append(Figure("Calls of each fresh process, as a cumulative distribution", chart))
    return {"figures": figures} if figures else None


def _limits_of(item: ItemView) -> Mapping[str, float]:
    """Return the limits on latency that are broken, with the texts of their lines."""
    limits = {}
    for limit in item.limits:
        if limit.quantity.startswith("latency_") and limit.verdict.value != "PASSED":
            name = limit.quantity.removeprefix("latency_")
            limits[f"limit on {name}: {format_quantity(limit.value, 's')}"] = limit.value
    return limits


LATENCY = Section("Latency", FIGURES, _latency)
"""Percentiles against their limits, and the distribution of the calls of each process."""
