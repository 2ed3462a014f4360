"""Sections of an upgrade: all quantities, its rounds, both distributions, and layers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pytest_mlms.core.records import Comparison, main_comparison
from pytest_mlms.decide.upgrade.labels import precision_text
from pytest_mlms.show.pages.canvas import Figure
from pytest_mlms.show.pages.item import ItemView
from pytest_mlms.show.pages.latency import distributions_chart
from pytest_mlms.show.pages.samples import pair_ratios, side_distributions
from pytest_mlms.show.pages.section import FIGURES, NOTED_FIGURES, Context, Section
from pytest_mlms.show.pages.upgrade_chart import Round, forest_chart, layers_chart, rounds_chart


def _changes(item: ItemView) -> Context | None:
    figures = []
    forest = forest_chart(item.comparisons)
    if forest is not None:
        caption = "Change of every quantity with its interval, over what its tolerance allows"
        figures.append(Figure(caption, forest))
    rounds = rounds_chart(_rounds_of(item), pair_ratios(item), _tolerance(item))
    if rounds is not None:
        caption = "Latency of calls over time: rounds of fresh processes, and their pairs of turns"
        figures.append(Figure(caption, rounds))
    sides = side_distributions(item)
    if sides:
        caption = "Wall time of all timed calls of both sides, as a cumulative distribution"
        figures.append(Figure(caption, distributions_chart(sides, paints=("a", "b"))))
    return {"figures": figures, "notes": list(_notes(item))} if figures else None


def _notes(item: ItemView) -> Iterator[str]:
    """Yield how precisely the main quantity was compared, and by what."""
    main = main_comparison(item.comparisons)
    if main is not None:
        yield precision_text(main)
    if item.rounds:
        pairs = sum(each.pairs for each in item.rounds)
        rounds = "1 round" if len(item.rounds) == 1 else f"{len(item.rounds)} rounds"
        yield f"{pairs:,} pairs of turns in {rounds} of fresh processes"


def _worse_inputs(item: ItemView) -> Context | None:
    return {"lines": item.worse_inputs} if item.worse_inputs else None


def _rounds_of(item: ItemView) -> Sequence[Round]:
    """Return the change of latency in each round that has one."""
    found = []
    for number, each in enumerate(item.rounds, 1):
        figure = each.figures.get("latency", ())
        if len(figure) >= 4 and figure[2] is not None:
            found.append((number, figure[2], figure[3]))
    return found


def _tolerance(item: ItemView) -> float | None:
    latency = _latency(item)
    return None if latency is None else latency.tolerance


def _latency(item: ItemView) -> Comparison | None:
    for compared in item.comparisons:
        if compared.quantity == "latency":
            return compared
    return None


def _layers(item: ItemView) -> Context | None:
    chart = layers_chart(item.layers)
    if chart is None:
        return None
    caption = "Change of time a call by layer, in a traced pass of its own; the last row is the sum"
    return {"figures": [Figure(caption, chart)]}


INPUTS = Section("Inputs that got worst, from A to B", "_lines.html", _worse_inputs)
"""The inputs of which the candidate makes less than the baseline."""

CHANGES = Section("What changed", NOTED_FIGURES, _changes)
"""A forest plot of all quantities, the rounds over time, and both sides' distributions."""

LAYERS = Section("Layers that moved", FIGURES, _layers)
"""A bar for each layer whose time changed."""
