"""Charts of latency: distributions, and percentiles with their limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from markupsafe import Markup

from pytest_mlms.core.units import format_quantity
from pytest_mlms.keep.results.line import EstimateRecord, LimitRecord
from pytest_mlms.show.pages.canvas import Plot
from pytest_mlms.show.pages.estimates import (
    add_estimate,
    add_limit,
    ends_of,
    is_shown,
    limit_words,
)
from pytest_mlms.show.pages.numbers import estimate_text, quantity_label
from pytest_mlms.show.pages.samples import Distribution
from pytest_mlms.show.pages.scales import Axis, Scale, log_scale, rows_axis, short_value
from pytest_mlms.show.pages.svg import paint_of

_SHARES = Scale(0.0, 1.0)
_SHOWN_SHARE = 0.99  # of the calls; the slowest would take most of the axis
_MOST_NAMED = 5  # distributions that have colours of their own


def distributions_chart(
    distributions: Sequence[Distribution],
    paints: Sequence[str] = (),
    limits: Mapping[str, float] | None = None,
    noun: str = "calls",
) -> Markup:
    """Return the share of calls that take a latency or less, a line for each distribution.

    ``limits`` are vertical lines: text -> seconds. ``noun`` is what has the latencies.
    """
    ends = _shown_ends(distributions)
    near = _near(limits or {}, ends)
    scale = log_scale([*ends, *near.values()])
    words = [_in_words(each, noun) for each in distributions]
    plot = Plot(
        f"share of {noun} up to each latency: {'; '.join(words)}",
        Axis(f"latency of {noun}, logarithmic", scale, short_value("s")),
        Axis(f"share of {noun}", _SHARES, "{:.0%}".format),
    )
    if len(distributions) > _MOST_NAMED:
        _add_crowd(plot, distributions, words)
    else:
        _add_named(plot, distributions, words, paints)
    for text, value in near.items():
        plot.vertical(value, "bad", text)
    return plot.svg()


def _shown_ends(distributions: Sequence[Distribution]) -> list[float]:
    """Return the ends of the lines that are shown, without the slowest of a hundred calls."""
    ends = []
    for each in distributions:
        latencies = [latency for latency, share in each.points if share <= _SHOWN_SHARE]
        ends += [latencies[0], latencies[-1]]
    return ends


def _near(limits: Mapping[str, float], ends: Sequence[float]) -> Mapping[str, float]:
    """Return the limits that don't make the axis more than twice as long at an end."""
    low = min(ends) / 2
    high = max(ends) * 2
    return {text: value for text, value in limits.items() if low <= value <= high}


def _add_named(
    plot: Plot, distributions: Sequence[Distribution], titles: Sequence[str], paints: Sequence[str]
) -> None:
    for index, each in enumerate(distributions):
        paint = paints[index] if paints else paint_of(index)
        plot.line(each.points, paint, titles[index])
        plot.legend(each.name, paint)


def _add_crowd(plot: Plot, distributions: Sequence[Distribution], titles: Sequence[str]) -> None:
    """Add lines in one colour, as there are too many to tell them apart."""
    paint = paint_of(0)
    for index, each in enumerate(distributions):
        plot.line(each.points, paint, titles[index])
    plot.legend(f"each of {len(distributions)} processes", paint)


def _in_words(each: Distribution, noun: str) -> str:
    return f"{each.name}: {each.count:,} {noun}, median {format_quantity(each.median, 's')}"


def percentiles_chart(
    estimates: Mapping[str, EstimateRecord], limits: Sequence[LimitRecord]
) -> Markup | None:
    """Return estimates of latency with their intervals, and the limits on them, or None."""
    shown = _latencies(estimates)
    if not shown:
        return None
    bounds = [limit for limit in limits if limit.quantity in shown]
    values = [limit.value for limit in bounds]
    scale = log_scale(values + ends_of(shown.values()))
    labels = [quantity_label(name) for name in shown]
    words = [f"{quantity_label(name)} {estimate_text(shown[name])}" for name in shown]
    axis = Axis("latency, logarithmic", scale, short_value("s"))
    plot = Plot("; ".join(words), axis, rows_axis(labels))
    names = list(shown)
    for row, name in enumerate(names):
        add_estimate(plot, row, name, shown[name])
    for limit in bounds:
        title = f"{limit_words(limit, 's')}, {limit.place}"
        add_limit(plot, names.index(limit.quantity), limit, title)
    return plot.svg()


def _latencies(estimates: Mapping[str, EstimateRecord]) -> Mapping[str, EstimateRecord]:
    """Return the estimates of latency that a logarithmic axis can show."""
    shown = {}
    for name, estimate in estimates.items():
        if name.startswith("latency_") and estimate.value and is_shown(estimate):
            shown[name] = estimate
    return shown
