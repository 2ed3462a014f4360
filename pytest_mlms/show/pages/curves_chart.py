"""Charts over batch sizes: a quantity of several stacks side by side."""

from __future__ import annotations

from collections.abc import Mapping

from markupsafe import Markup

from pytest_mlms.keep.results.line import EstimateRecord
from pytest_mlms.show.pages.canvas import Plot
from pytest_mlms.show.pages.curves import Curves
from pytest_mlms.show.pages.estimates import ends_of
from pytest_mlms.show.pages.numbers import estimate_text, quantity_label
from pytest_mlms.show.pages.scales import Axis, log_scale, short_value
from pytest_mlms.show.pages.svg import paint_of


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
        _add_stack(plot, stack, points, paint_of(index))
    return plot.svg()


def _add_stack(plot: Plot, stack: str, points: Mapping[int, EstimateRecord], paint: str) -> None:
    line = [(batch, each.value or 0.0) for batch, each in points.items()]
    plot.line(line, paint)
    for batch, estimate in points.items():
        title = f"{stack}, batch size {batch}: {estimate_text(estimate)}"
        ends = [end for end in ends_of([estimate]) if end]
        plot.whisker(batch, (min(ends), max(ends)), paint, title)
        plot.dot(batch, estimate.value or 0.0, paint, title)
    plot.legend(stack, paint)
