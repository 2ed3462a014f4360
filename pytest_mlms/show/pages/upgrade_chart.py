"""Charts of an upgrade: all quantities with their tolerances, its rounds, and layers that moved."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

from markupsafe import Markup

from pytest_mlms.core.records import Comparison, Verdict
from pytest_mlms.core.units import format_quantity
from pytest_mlms.decide.upgrade.labels import format_change, percent, verdict_label, worst_change
from pytest_mlms.decide.upgrade.layer_diff import LayerChange
from pytest_mlms.show.pages.canvas import Plot, around
from pytest_mlms.show.pages.numbers import quantity_label
from pytest_mlms.show.pages.samples import PairRatios
from pytest_mlms.show.pages.scales import (
    Axis,
    Scale,
    linear_scale,
    percent_of,
    rows_axis,
    short_value,
    signed_number,
)

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
_CUT_SHARE = 0.25  # of the pairs at each end, whose spread does not widen the axis

Round: TypeAlias = tuple[int, float, float | None]
"""The number of a round, log(B / A), and its standard error, None where it doesn't count."""


def forest_chart(comparisons: Sequence[Comparison]) -> Markup | None:
    """Return the change of each quantity with its interval, on its tolerance, the worst first.

    None where nothing was compared as a share.
    """
    shown = [each for each in comparisons if not math.isnan(_change(each, each.ratio))]
    if not shown:
        return None
    shown.sort(key=lambda each: _WORST_FIRST.index(each.verdict))
    words = list(map(_in_words, shown))
    labels = [quantity_label(each.quantity) for each in shown]
    plot = Plot(
        f"change from A to B: {'; '.join(words)}",
        Axis("change from A to B, %", _scale_of(shown), signed_number),
        rows_axis(labels),
    )
    for row, each in enumerate(shown):
        _add_tolerance(plot, row, each)
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


def _add_tolerance(plot: Plot, row: int, compared: Comparison) -> None:
    """Add a bar over the changes that are within the tolerance or better."""
    end = 100 * worst_change(compared)
    better = -math.inf if end > 0 else math.inf
    title = f"{quantity_label(compared.quantity)}: tolerance {percent(compared.tolerance)}"
    plot.bar((better, end), around(row, 0.36), "band", title)


def _change(compared: Comparison, ratio: float) -> float:
    """Return a ratio as a change in percent; of quantities over inputs it is one already.

    NaN for the agreement of outputs, which is a multiple of what is allowed.
    """
    if compared.of == "outputs":
        return math.nan
    if compared.of == "inputs":
        return 100 * ratio
    return 100 * (ratio - 1)


def _in_words(compared: Comparison) -> str:
    name = quantity_label(compared.quantity)
    return f"{name} {format_change(compared)}, {verdict_label(compared)}"


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

    None without any round.
    """
    if not rounds:
        return None
    changes = [percent_of(log_ratio) for _, log_ratio, _ in rounds]
    words = ", ".join(f"{change:+.1f} %" for change in changes)
    last = max(number for number, _, _ in rounds)
    values = [0.0, *changes, *_most_pairs(pairs)]
    if tolerance is not None:
        values.append(100 * tolerance)
    plot = Plot(
        f"change of latency in each round: {words}",
        Axis("round", Scale(0.5, last + 0.5), ticks=_thinned(last)),
        Axis("change of latency, %", linear_scale(values), signed_number),
    )
    for each in pairs:
        _add_pairs(plot, each)
    plot.horizontal(0.0, "muted", dashed=False)
    if tolerance is not None:
        plot.horizontal(100 * tolerance, "bad", f"tolerance {percent(tolerance)}")
    for measured in rounds:
        _add_round(plot, *measured)
    plot.legend("round, with two standard errors", "b")
    if pairs:
        plot.legend("pair of turns", "muted")
    return plot.svg()


def _add_round(plot: Plot, number: int, log_ratio: float, error: float | None) -> None:
    change = percent_of(log_ratio)
    if error is None:
        title = f"round {number}: {change:+.2f} %, doesn't count"
        plot.dot(number, change, "muted", title, radius=4.5)
        return
    low = percent_of(log_ratio - 2 * error)
    high = percent_of(log_ratio + 2 * error)
    title = f"round {number}: {change:+.2f} %"
    plot.whisker(number, (low, high), "b", title)
    plot.dot(number, change, "b", title, radius=4.5)


def _most_pairs(pairs: Sequence[PairRatios]) -> Sequence[float]:
    """Return the changes of pairs in percent, without the least and the greatest ones."""
    changes: list[float] = []
    for each in pairs:
        changes += _changes_of(each)
    cut = math.ceil(len(changes) * _CUT_SHARE)
    return sorted(changes)[cut : len(changes) - cut]


def _changes_of(pairs: PairRatios) -> Sequence[float]:
    return [100 * (ratio - 1) for ratio in pairs.ratios]


def _add_pairs(plot: Plot, pairs: PairRatios) -> None:
    """Add the pairs of a round in their order from left to right."""
    changes = _changes_of(pairs)
    step = 0.8 / max(len(changes), 1)
    first = pairs.number - 0.4
    points = [(first + index * step, change) for index, change in enumerate(changes)]
    plot.points(points, "muted")


def _thinned(last: int) -> Sequence[float]:
    """Return the numbers of at most twelve of the rounds."""
    step = math.ceil(last / _MOST_NUMBERS)
    return list(range(1, last + 1, step))


def layers_chart(layers: Sequence[LayerChange]) -> Markup | None:
    """Return the change of each layer's time as a bar from 0; None where no layer was seen."""
    shown = [layer for layer in layers if math.isfinite(layer.change)]
    if not shown:
        return None
    changes = linear_scale([layer.change for layer in shown], zero=True)
    words = [f"{layer.name} {_signed(layer.change)}" for layer in shown]
    plot = Plot(
        f"change of each layer's time from A to B: {'; '.join(words)}",
        Axis("change of time a call, from A to B", changes, _signed_tick),
        rows_axis([_row_name(layer) for layer in shown]),
    )
    for row, layer in enumerate(shown):
        paint = "bad" if layer.change > 0 else "good"
        title = f"{layer.name} ({layer.type}): {_side(layer.a)} → {_side(layer.b)}"
        plot.bar((0.0, layer.change), around(row, 0.32), paint, title)
    plot.vertical(0.0, "muted", dashed=False)
    return plot.svg()


def _row_name(layer: LayerChange) -> str:
    """Return a layer's name, and the side that has it where the other one doesn't."""
    if layer.a is None:
        return f"{layer.name}, only in B"
    if layer.b is None:
        return f"{layer.name}, only in A"
    return layer.name


def _side(seconds: float | None) -> str:
    if seconds is None:
        return "not there"
    return format_quantity(seconds, "s")


def _signed(seconds: float) -> str:
    return _plus(seconds) + format_quantity(seconds, "s")


def _signed_tick(seconds: float) -> str:
    return _plus(seconds) + short_value("s")(seconds)


def _plus(value: float) -> str:
    return "+" if value > 0 else ""
