"""Curves over batch sizes: one model, device and scenario, a line for each stack and run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from pytest_mlms.keep.results.line import EstimateRecord
from pytest_mlms.show.pages.canvas import Figure, Plot
from pytest_mlms.show.pages.estimates import ends_of
from pytest_mlms.show.pages.item import ItemView
from pytest_mlms.show.pages.numbers import estimate_text, quantity_label
from pytest_mlms.show.pages.scales import Axis, log_scale, short_value
from pytest_mlms.show.pages.svg import paint_of

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
