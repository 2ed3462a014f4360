"""Charts of an upgrade under load: its rounds, and the rates that were tried for a peak."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from markupsafe import Markup

from pytest_mlms.core.records import Comparison
from pytest_mlms.core.units import format_quantity
from pytest_mlms.decide.upgrade.labels import percent, worst_change
from pytest_mlms.decide.upgrade.round_record import PeakRecord
from pytest_mlms.show.pages.canvas import Plot
from pytest_mlms.show.pages.numbers import quantity_label
from pytest_mlms.show.pages.scales import (
    Axis,
    Scale,
    linear_scale,
    log_scale,
    percent_of,
    short_value,
    signed_number,
)

_MOST_NUMBERS = 12  # of rounds on their axis
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


def load_rounds_chart(compared: Comparison, rounds: Sequence[RoundChange]) -> Markup:
    """Return the change in each round, over the interval of their mean, with the tolerance."""
    name = quantity_label(compared.quantity)
    limit = 100 * worst_change(compared)
    interval = [100 * (end - 1) for end in (compared.low, compared.high)]
    has_interval = compared.low > 0 and math.isfinite(compared.high)
    values = [0.0, limit, *[each.percent for each in rounds], *(interval if has_interval else [])]
    last = max(each.number for each in rounds)
    step = math.ceil(last / _MOST_NUMBERS)
    words = ", ".join(f"{each.percent:+.1f} %" for each in rounds)
    plot = Plot(
        f"change of {name} in each round: {words}",
        Axis("round", Scale(0.5, last + 0.5), ticks=range(1, last + 1, step)),
        Axis(f"change of {name}, %", linear_scale(values), signed_number),
    )
    if has_interval:
        low, high = interval
        title = f"interval of the mean: {low:+.1f} to {high:+.1f} %"
        plot.bar((0.5, last + 0.5), (low, high), "grid", title)
        plot.legend(title, "grid")
    plot.horizontal(0.0, "muted", dashed=False)
    plot.horizontal(limit, "bad", f"tolerance {percent(compared.tolerance)}")
    for each in rounds:
        _add_round(plot, each)
    for paint, name in _LEGEND.items():
        if any(_paint_of(each) == paint for each in rounds):
            plot.legend(name, paint)
    return plot.svg()


def _add_round(plot: Plot, each: RoundChange) -> None:
    note = "" if each.counts else ", doesn't count"
    title = f"round {each.number}: {each.percent:+.2f} %{note}"
    plot.dot(each.number, each.percent, _paint_of(each), title, radius=4.5)


def _paint_of(each: RoundChange) -> str:
    return "b" if each.counts else "muted"


def rates_chart(peaks: Sequence[Mapping[str, PeakRecord]], limit: float, percentile: str) -> Markup:
    """Return the percentile at each rate that was tried for the peaks of both sides, in all rounds.

    ``limit`` is in seconds.
    """
    tried = {side: _points(peaks, side) for side in ("a", "b")}
    rates = [rate for points in tried.values() for rate, _ in points]
    latencies = [latency for points in tried.values() for _, latency in points]
    limit_text = f"limit {format_quantity(limit, 's')}"
    words = f"{percentile} of the latencies at {len(rates)} runs of load, {limit_text}"
    plot = Plot(
        words,
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


def _points(peaks: Sequence[Mapping[str, PeakRecord]], side: str) -> Sequence[tuple[float, float]]:
    found = []
    for each in peaks:
        if side in each:
            found += [(tried.rate, tried.latency) for tried in each[side].tried]
    return found
