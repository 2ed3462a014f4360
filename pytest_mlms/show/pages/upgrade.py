"""An upgrade: quantities and tolerances, rounds, sides, layers that moved, queries and rates."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
from markupsafe import Markup

from pytest_mlms.core.quantities import QUANTITIES
from pytest_mlms.core.records import Comparison, LayerChange, PeakRecord, Verdict, main_comparison
from pytest_mlms.core.units import format_quantity
from pytest_mlms.decide.upgrade.labels import (
    format_change,
    percent,
    precision_text,
    verdict_label,
    worst_change,
)
from pytest_mlms.show.pages.canvas import Context, Figure, Plot, around
from pytest_mlms.show.pages.drawing import (
    Axis,
    Scale,
    linear_scale,
    log_scale,
    percent_of,
    rows_axis,
    short_value,
    signed_number,
)
from pytest_mlms.show.pages.estimates import (
    arrays_of,
    distributions_chart,
    have_numbers,
    query_distributions,
    side_distributions,
)
from pytest_mlms.show.pages.item import ItemView
from pytest_mlms.show.pages.numbers import quantity_label

_PAINTS = {
    Verdict.REGRESSED: "bad",
    Verdict.FAILED: "bad",
    Verdict.INVALID: "bad",
    Verdict.ERROR: "bad",
    Verdict.INCONCLUSIVE: "warn",
    Verdict.IMPROVED: "good",
}
_LEGEND = {"bad": "worse", "warn": "undecided", "good": "improved", "b": "passed"}
"""Paint of a change -> its name in the legend."""

_WORST_FIRST = list(Verdict)
_REACH = 1.5  # times the largest change or tolerance of a gate, where intervals are cut off
_MOST_NUMBERS = 12  # of rounds on their axis
_MOST_PAIRS = 400  # of the ratios that a picture shows
_CUT_SHARE = 0.25  # of the pairs at each end, whose spread does not widen the axis

Round: TypeAlias = tuple[int, float, float | None]
"""The number of a round, log(B / A), and its standard error, None where it doesn't count."""


@dataclass(frozen=True)
class PairRatios:
    """B over A of each pair of turns, in the order in which they ran, by round from 1 on."""

    number: int
    ratios: tuple[float, ...]

    @property
    def changes(self) -> Sequence[float]:
        """The changes from A to B in percent."""
        return [100 * (ratio - 1) for ratio in self.ratios]


def worse_inputs_section(item: ItemView) -> Context | None:
    """Return the inputs of which the candidate makes less than the baseline."""
    return {"lines": item.worse_inputs} if item.worse_inputs else None


def changes_section(item: ItemView) -> Context | None:
    """Return a forest plot of all quantities, the rounds over time, both sides' distributions."""
    figures = []
    forest = forest_chart(item.comparisons)
    if forest is not None:
        caption = "Change of every quantity with its interval, over what its tolerance allows"
        figures.append(Figure(caption, forest))

    found = []
    for number, each in enumerate(item.rounds, 1):
        figure = each.figures.get("latency", ())
        if len(figure) >= 4 and figure[2] is not None:
            found.append((number, figure[2], figure[3]))
    tolerances = [each.tolerance for each in item.comparisons if each.quantity == "latency"]
    rounds = rounds_chart(found, pair_ratios(item), tolerances[0] if tolerances else None)
    if rounds is not None:
        caption = "Latency of calls over time: rounds of fresh processes, and their pairs of turns"
        figures.append(Figure(caption, rounds))

    sides = side_distributions(item)
    if sides:
        caption = "Wall time of all timed calls of both sides, as a cumulative distribution"
        figures.append(Figure(caption, distributions_chart(sides, paints=("a", "b"))))

    notes = []
    main = main_comparison(item.comparisons)
    if main is not None:
        notes.append(precision_text(main))
    if item.rounds:
        pairs = sum(each.pairs for each in item.rounds)
        noun = "1 round" if len(item.rounds) == 1 else f"{len(item.rounds)} rounds"
        notes.append(f"{pairs:,} pairs of turns in {noun} of fresh processes")
    return {"figures": figures, "notes": notes} if figures else None


def layers_section(item: ItemView) -> Context | None:
    """Return a bar for each layer whose time changed."""
    chart = layers_chart(item.layers)
    if chart is None:
        return None
    caption = "Change of time a call by layer, in a traced pass of its own; the last row is the sum"
    return {"figures": [Figure(caption, chart)]}


def pair_ratios(item: ItemView) -> Sequence[PairRatios]:
    """Return the ratio of each pair of turns of an upgrade, thinned evenly where there are many.

    A pair has the mean of its calls; those whose ratio is no number are left out.
    """
    rounds = {}
    for number, arrays in enumerate(arrays_of(item, "pairs-"), 1):
        if not have_numbers(arrays, "wall_a", "wall_b"):
            continue
        a = arrays["wall_a"]
        b = arrays["wall_b"]
        if a.shape == b.shape:
            with np.errstate(all="ignore"):
                means_a = a.reshape(len(a), -1).mean(axis=1)
                means_b = b.reshape(len(b), -1).mean(axis=1)
                ratios = means_b / means_a
            rounds[number] = ratios[np.isfinite(ratios)]
    total = sum(map(len, rounds.values()))
    step = max(math.ceil(total / _MOST_PAIRS), 1)
    return [PairRatios(number, tuple(each[::step].tolist())) for number, each in rounds.items()]


def forest_chart(comparisons: Sequence[Comparison]) -> Markup | None:
    """Return the change of each quantity with its interval, on its tolerance, the worst first.

    None where nothing was compared as a share.
    """
    shown = [each for each in comparisons if not math.isnan(_change(each, each.ratio))]
    if not shown:
        return None
    shown.sort(key=lambda each: _WORST_FIRST.index(each.verdict))
    labels = [quantity_label(each.quantity) for each in shown]
    words = []
    for name, each in zip(labels, shown, strict=True):
        words.append(f"{name} {format_change(each)}, {verdict_label(each)}")
    plot = Plot(
        f"change from A to B: {'; '.join(words)}",
        Axis("change from A to B, %", _scale_of(shown), signed_number),
        rows_axis(labels),
    )
    for row, each in enumerate(shown):
        end = 100 * worst_change(each)
        better = -math.inf if end > 0 else math.inf
        title = f"{labels[row]}: tolerance {percent(each.tolerance)}"
        plot.bar((better, end), around(row, 0.36), "band", title)
    plot.vertical(0.0, "muted", dashed=False)
    paints = [_PAINTS.get(each.verdict, "b") for each in shown]
    for row, each in enumerate(shown):
        change = _change(each, each.ratio)
        if _is_unbounded(each):
            plot.dot(change, row, paints[row], words[row], radius=4)
        else:
            ends = (_change(each, each.low), _change(each, each.high))
            plot.estimate(change, ends, row, paints[row], words[row])
    plot.legend("within the tolerance or better", "band")
    for paint in dict.fromkeys(paints):
        plot.legend(_LEGEND[paint], paint)
    return plot.svg()


def _is_unbounded(compared: Comparison) -> bool:
    """Return whether a change has no interval yet, as after its first round."""
    return compared.low <= 0 and math.isinf(compared.high)


def _change(compared: Comparison, ratio: float) -> float:
    """Return a ratio as a change in percent; of quantities over inputs it is one already.

    NaN for the agreement of outputs, which is a multiple of what is allowed.
    """
    if compared.of == "outputs":
        return math.nan
    if compared.of == "inputs":
        return 100 * ratio
    return 100 * (ratio - 1)


def _scale_of(comparisons: Sequence[Comparison]) -> Scale:
    """Return a scale that has all changes and the tolerances of gates.

    Intervals and other tolerances are cut off where they reach much further, as those of loading
    do, so that changes of a percent can be seen.
    """
    values = [0.0]
    for each in comparisons:
        values.append(_change(each, each.ratio))
        if each.gate:
            tolerance = 100 * each.tolerance
            values += [tolerance, -tolerance]
    reach = max(map(abs, values)) * _REACH or 1.0
    for each in comparisons:
        if _is_unbounded(each):
            continue
        low = _change(each, each.low)
        high = _change(each, each.high)
        values += [max(low, -reach), min(high, reach)]
    return linear_scale(values)


def rounds_chart(
    rounds: Sequence[Round], pairs: Sequence[PairRatios], tolerance: float | None
) -> Markup | None:
    """Return the change of latency in each round, over the ratios of its pairs.

    None without any round. The least and the greatest pairs don't widen the axis.
    """
    if not rounds:
        return None
    changes = [percent_of(log_ratio) for _, log_ratio, _ in rounds]
    of_pairs = sorted(change for each in pairs for change in each.changes)
    cut = math.ceil(len(of_pairs) * _CUT_SHARE)
    values = [0.0, *changes, *of_pairs[cut : len(of_pairs) - cut]]
    if tolerance is not None:
        values.append(100 * tolerance)
    words = ", ".join(f"{change:+.1f} %" for change in changes)
    last = max(number for number, _, _ in rounds)
    plot = Plot(
        f"change of latency in each round: {words}",
        rounds_axis(last),
        Axis("change of latency, %", linear_scale(values), signed_number),
    )
    for each in pairs:  # in their order from left to right
        step = 0.8 / max(len(each.ratios), 1)
        first = each.number - 0.4
        plot.points(
            [(first + index * step, change) for index, change in enumerate(each.changes)], "muted"
        )
    plot.horizontal(0.0, "muted", dashed=False)
    if tolerance is not None:
        plot.horizontal(100 * tolerance, "bad", f"tolerance {percent(tolerance)}")
    for (number, log_ratio, error), change in zip(rounds, changes, strict=True):
        title = f"round {number}: {change:+.2f} %"
        if error is None:
            plot.dot(number, change, "muted", f"{title}, doesn't count", radius=4.5)
            continue
        ends = (percent_of(log_ratio - 2 * error), percent_of(log_ratio + 2 * error))
        plot.whisker(number, ends, "b", title)
        plot.dot(number, change, "b", title, radius=4.5)
    plot.legend("round, with two standard errors", "b")
    if pairs:
        plot.legend("pair of turns", "muted")
    return plot.svg()


def rounds_axis(last: int) -> Axis:
    """Return the axis of rounds from 1 on, with the numbers of at most twelve of them."""
    step = math.ceil(last / _MOST_NUMBERS)
    return Axis("round", Scale(0.5, last + 0.5), ticks=range(1, last + 1, step))


def layers_chart(layers: Sequence[LayerChange]) -> Markup | None:
    """Return the change of each layer's time as a bar from 0; None where no layer was seen."""
    shown = [layer for layer in layers if math.isfinite(layer.change)]
    if not shown:
        return None
    words = []
    names = []
    for layer in shown:
        sign = "+" if layer.change > 0 else ""
        words.append(f"{layer.name} {sign}{format_quantity(layer.change, 's')}")
        only = ", only in B" if layer.a is None else ", only in A" if layer.b is None else ""
        names.append(f"{layer.name}{only}")
    changes = linear_scale([layer.change for layer in shown], zero=True)
    plot = Plot(
        f"change of each layer's time from A to B: {'; '.join(words)}",
        Axis("change of time a call, from A to B", changes, _signed_tick),
        rows_axis(names),
    )
    for row, layer in enumerate(shown):
        paint = "bad" if layer.change > 0 else "good"
        title = f"{layer.name} ({layer.type}): {_side(layer.a)} → {_side(layer.b)}"
        plot.bar((0.0, layer.change), around(row, 0.32), paint, title)
    plot.vertical(0.0, "muted", dashed=False)
    return plot.svg()


def _side(seconds: float | None) -> str:
    return "not there" if seconds is None else format_quantity(seconds, "s")


def _signed_tick(seconds: float) -> str:
    sign = "+" if seconds > 0 else ""
    return sign + short_value("s")(seconds)


_NAMES = {
    "query_latency": "Change of the percentile of the queries' latencies",
    "query_rate": "Change of the rate of queries that were done",
    "peak_rate": "Change of the peak, the rate at which the percentile is at its limit,",
}
_LEGEND_OF_ROUNDS = {"b": "round", "muted": "round that doesn't count"}


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
    for paint, name in _LEGEND_OF_ROUNDS.items():
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
