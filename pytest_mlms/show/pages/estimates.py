"""Charts of what items measured: estimates with their limits, distributions of calls, curves.

Raw samples are read from artifacts as few numbers that a picture needs. An artifact that is missing
or damaged gives nothing: a picture of the rest is better than none."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup

from pytest_mlms.core.files import DamagedFile, content_size, read_arrays
from pytest_mlms.core.records import Verdict
from pytest_mlms.core.units import format_quantity
from pytest_mlms.keep.results.line import EstimateRecord, LimitRecord
from pytest_mlms.show.pages.canvas import Context, Figure, Plot
from pytest_mlms.show.pages.drawing import (
    Axis,
    Scale,
    TickText,
    linear_scale,
    log_scale,
    paint_of,
    rows_axis,
    short_value,
)
from pytest_mlms.show.pages.item import ItemView
from pytest_mlms.show.pages.numbers import estimate_text, limit_text, quantity_label

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


_MOST_BYTES = 1 << 28  # of the content of an artifact; a run that was pushed may have a bomb
_QUANTILES = np.concatenate([np.linspace(0, 0.9, 46), [0.925, 0.95, 0.97, 0.98, 0.99, 0.995, 1]])
_SHARES = Scale(0.0, 1.0)
_SHOWN_SHARE = 0.99  # of the calls; the slowest would take most of the axis
_seconds = short_value("s")
_MOST_NAMED = 5  # distributions that have colours of their own


@dataclass(frozen=True)
class Distribution:
    """Latencies in seconds: how many, and the value of each of some shares."""

    name: str
    count: int
    points: tuple[tuple[float, float], ...]

    @property
    def median(self) -> float:
        """The median in seconds."""
        return min(self.points, key=lambda point: abs(point[1] - 0.5))[0]


def latency_section(item: ItemView) -> Context | None:
    """Return percentiles against their limits, and the distribution of calls of each process."""
    figures = []
    percentiles = percentiles_chart(item.estimates, item.limits)
    if percentiles is not None:
        caption = "Mean and percentiles over processes with their intervals; thick marks are limits"
        figures.append(Figure(caption, percentiles))

    distributions = process_distributions(item)
    if distributions:
        broken = {}
        for limit in item.limits:
            if limit.quantity.startswith("latency_") and limit.verdict.value != "PASSED":
                name = limit.quantity.removeprefix("latency_")
                broken[f"limit on {name}: {format_quantity(limit.value, 's')}"] = limit.value
        chart = distributions_chart(distributions, limits=broken)
        figures.append(Figure("Calls of each fresh process, as a cumulative distribution", chart))
    return {"figures": figures} if figures else None


def process_distributions(item: ItemView) -> Sequence[Distribution]:
    """Return the latencies of each process of a performance item."""
    found: list[Distribution] = []
    for number, arrays in enumerate(arrays_of(item, "samples-"), 1):
        if have_numbers(arrays, "start", "end"):
            latencies = arrays["end"] - arrays["start"]
            found += _distribution(f"process {number}", latencies)
    return found


def side_distributions(item: ItemView) -> Sequence[Distribution]:
    """Return the latencies of both sides of an upgrade, over all of its rounds."""
    walls: dict[str, list[Any]] = {"wall_a": [], "wall_b": []}
    for arrays in arrays_of(item, "pairs-"):
        if have_numbers(arrays, *walls):
            for name, values in walls.items():
                values.append(np.ravel(arrays[name]))
    return _both_sides(item, *walls.values())


def query_distributions(item: ItemView) -> Sequence[Distribution]:
    """Return the latencies of queries of both sides of an upgrade, over all of its rounds.

    They are those of the first run of load in each round.
    """
    sides: dict[str, list[Any]] = {"a": [], "b": []}
    for arrays in arrays_of(item, "pairs-"):
        found = {side: _query_latencies(arrays, side) for side in sides}
        if all(latencies.size for latencies in found.values()):
            for side, values in sides.items():
                values.append(found[side])
    return _both_sides(item, *sides.values())


def _query_latencies(arrays: dict[str, Any], side: str) -> Any:
    """Return seconds, none where they are missing."""
    scheduled = arrays.get(f"query_scheduled_{side}")
    done = arrays.get(f"query_done_{side}")
    if scheduled is None or done is None or scheduled.shape != done.shape:
        return np.empty(0)
    if scheduled.dtype.kind != "i" or done.dtype.kind != "i":
        return np.empty(0)
    return (done - scheduled) * 1e-9


def _both_sides(item: ItemView, a: Sequence[Any], b: Sequence[Any]) -> Sequence[Distribution]:
    """Return the distribution of each side's values of all rounds, where there are any."""
    if item.against is None or not a or not b:
        return []
    return [
        *_distribution(f"A: {item.baseline_label}", np.concatenate(a)),
        *_distribution(f"B: {item.candidate_label}", np.concatenate(b)),
    ]


def arrays_of(item: ItemView, prefix: str) -> Iterator[dict[str, Any]]:
    """Yield the arrays of each artifact with this beginning that can be read."""
    for path in item.artifacts_like(prefix, ".npz").values():
        try:
            if content_size(path) <= _MOST_BYTES:
                yield read_arrays(path)
        except (OSError, DamagedFile):
            continue


def have_numbers(arrays: dict[str, Any], *names: str) -> bool:
    """Return whether these arrays are there, have numbers, and have some."""
    for name in names:
        values = arrays.get(name)
        if values is None or values.dtype.kind != "f" or not values.size:
            return False
    return True


def _distribution(name: str, latencies: Any) -> Iterator[Distribution]:
    """Yield the distribution of some latencies, nothing where there is no number among them."""
    finite = latencies[np.isfinite(latencies)]
    if not finite.size:
        return
    shares = _QUANTILES
    if finite.size <= len(_QUANTILES):
        shares = np.linspace(0, 1, finite.size)
    values = np.quantile(finite, shares)
    points = zip(values.tolist(), shares.tolist(), strict=True)
    yield Distribution(name, int(finite.size), tuple(points))


def distributions_chart(
    distributions: Sequence[Distribution],
    paints: Sequence[str] = (),
    limits: Mapping[str, float] | None = None,
    noun: str = "calls",
) -> Markup:
    """Return the share of calls that take a latency or less, a line for each distribution.

    ``limits`` are vertical lines: text -> seconds; those are left out that would make the axis more
    than twice as long at an end. ``noun`` is what has the latencies.
    """
    ends = []
    for each in distributions:
        latencies = [latency for latency, share in each.points if share <= _SHOWN_SHARE]
        ends += [latencies[0], latencies[-1]]
    low = min(ends) / 2
    high = max(ends) * 2
    near = {text: value for text, value in (limits or {}).items() if low <= value <= high}

    words = []
    for each in distributions:
        median = format_quantity(each.median, "s")
        words.append(f"{each.name}: {each.count:,} {noun}, median {median}")
    plot = Plot(
        f"share of {noun} up to each latency: {'; '.join(words)}",
        Axis(f"latency of {noun}, logarithmic", log_scale([*ends, *near.values()]), _seconds),
        Axis(f"share of {noun}", _SHARES, "{:.0%}".format),
    )
    is_crowd = len(distributions) > _MOST_NAMED  # too many to be told apart by their colours
    for index, each in enumerate(distributions):
        paint = paints[index] if paints and not is_crowd else paint_of(0 if is_crowd else index)
        plot.line(each.points, paint, words[index])
        if not is_crowd:
            plot.legend(each.name, paint)
    if is_crowd:
        plot.legend(f"each of {len(distributions)} processes", paint_of(0))
    for text, value in near.items():
        plot.vertical(value, "bad", text)
    return plot.svg()


def percentiles_chart(
    estimates: Mapping[str, EstimateRecord], limits: Sequence[LimitRecord]
) -> Markup | None:
    """Return estimates of latency with their intervals, and the limits on them, or None."""
    shown = {}
    for name, estimate in estimates.items():
        if name.startswith("latency_") and estimate.value and is_shown(estimate):
            shown[name] = estimate
    if not shown:
        return None

    names = list(shown)
    bounds = [limit for limit in limits if limit.quantity in shown]
    scale = log_scale([limit.value for limit in bounds] + ends_of(shown.values()))
    plot = Plot(
        "; ".join(f"{quantity_label(name)} {estimate_text(shown[name])}" for name in names),
        Axis("latency, logarithmic", scale, _seconds),
        rows_axis([quantity_label(name) for name in names]),
    )
    for row, name in enumerate(names):
        add_estimate(plot, row, name, shown[name])
    for limit in bounds:
        add_limit(plot, names.index(limit.quantity), limit, "s", f", {limit.place}")
    return plot.svg()


CURVES = ("latency_p50", "throughput")
"""The quantities that are shown over batch sizes."""


@dataclass(frozen=True)
class Curves:
    """The estimates of a quantity by the label of a line, each by batch size from the smallest."""

    model: str
    device: str
    scenario: str
    quantity: str
    unit: str
    stacks: Mapping[str, Mapping[int, EstimateRecord]]

    @property
    def batch_sizes(self) -> Sequence[int]:
        """All batch sizes that a stack was measured at."""
        return sorted({batch for points in self.stacks.values() for batch in points})


def curves_of(items: Iterable[ItemView]) -> Sequence[Curves]:
    """Return the curves that have something to compare: batch sizes, or stacks at one of them."""
    groups: dict[tuple[str, str, str], list[ItemView]] = {}
    for item in items:
        if item.kind == "performance" and item.estimates:
            scenario = " ".join(filter(None, (item.scenario, item.shape)))
            groups.setdefault((item.manifest.name, item.device, scenario), []).append(item)

    found = []
    for (model, device, scenario), group in groups.items():
        for quantity in CURVES:
            stacks = _by_line(group, quantity)
            points = [point for points in stacks.values() for point in points.values()]
            if len(points) >= 2:
                unit = points[0].unit
                found.append(Curves(model, device, scenario, quantity, unit, stacks))
    return found


def _by_line(items: Sequence[ItemView], quantity: str) -> dict[str, dict[int, EstimateRecord]]:
    """Return the estimates of a quantity by line and batch size.

    The label of a line has the stack, and of framework, variant, host and run what differs.
    """
    facts = [(item.framework, item.variant, item.machine.host, item.run) for item in items]
    differ = [len(set(values)) > 1 for values in zip(*facts, strict=True)]
    lines: dict[str, dict[int, EstimateRecord]] = {}
    for item, known in sorted(zip(items, facts, strict=True), key=lambda one: one[0].batch_size):
        estimate = item.estimates.get(quantity)
        if estimate is None or not estimate.value or estimate.lacking:
            continue
        told = [fact for fact, is_told in zip(known, differ, strict=True) if is_told and fact]
        label = " ".join(dict.fromkeys([item.stack_label, *told]))
        lines.setdefault(label, {})[item.batch_size] = estimate
    return lines


def curves_figure(curves: Curves) -> Figure:
    """Return the picture of curves with its caption."""
    case = f"{curves.model} on {curves.device}, {curves.scenario}"
    return Figure(f"{case}: {quantity_label(curves.quantity)} by batch size", curves_chart(curves))


def curves_chart(curves: Curves) -> Markup:
    """Return a quantity over batch sizes, a line with intervals for each stack."""
    values = []
    for points in curves.stacks.values():
        values += ends_of(points.values())
    batches = curves.batch_sizes
    label = quantity_label(curves.quantity)
    plot = Plot(
        f"{label} by batch size of {curves.model} on {curves.device}, {curves.scenario}",
        Axis("batch size", log_scale(batches), "{:g}".format, ticks=batches),
        Axis(label, log_scale(values), short_value(curves.unit)),
    )
    for index, (stack, points) in enumerate(curves.stacks.items()):
        paint = paint_of(index)
        plot.line([(batch, each.value or 0.0) for batch, each in points.items()], paint)
        for batch, estimate in points.items():
            title = f"{stack}, batch size {batch}: {estimate_text(estimate)}"
            ends = [end for end in ends_of([estimate]) if end]
            plot.whisker(batch, (min(ends), max(ends)), paint, title)
            plot.dot(batch, estimate.value or 0.0, paint, title)
        plot.legend(stack, paint)
    return plot.svg()
