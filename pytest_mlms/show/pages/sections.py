"""Sections of an item in reports and pages, by its kind: a heading, and pictures or tables.

A part of a page is imported when an item has it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from markupsafe import Markup

from pytest_mlms.show.pages.canvas import Context
from pytest_mlms.show.pages.html import environment
from pytest_mlms.show.pages.item import ItemView

KINDS = ("accuracy", "agreement", "performance", "trace", "upgrade")
"""The kinds of items that have sections."""

_FIGURES = "_figures.html"  # of ``figures``
_NOTED_FIGURES = "_noted_figures.html"  # of ``figures`` and ``notes``, a list of texts


class Section(NamedTuple):
    """A section: its heading, the file of its template, and the function that fills it.

    ``context`` returns None where the item has nothing for it. It reads the item and the item's
    artifacts, of which any may be missing or broken.
    """

    title: str
    template: str
    context: Callable[[ItemView], Context | None]


def sections_of(item: ItemView) -> Iterator[tuple[str, Markup]]:
    """Yield the heading and the content of each section that an item has."""
    for section in _possible(item):
        context = section.context(item)
        if context is not None:
            template = environment().get_template(section.template)
            yield section.title, Markup(template.render(item=item, **context))


def _possible(item: ItemView) -> Sequence[Section]:
    """Return the sections of items of this kind, in the order in which they are shown."""
    if item.kind == "accuracy":
        from pytest_mlms.show.pages.estimates import intervals_section
        from pytest_mlms.show.pages.mistakes import mistakes_section
        from pytest_mlms.show.pages.worst_inputs import worst_inputs_section

        return [
            Section("Accuracy against its limits", _FIGURES, intervals_section),
            Section("Worst inputs", "_worst_inputs.html", worst_inputs_section),
            Section("Mistakes by class", _FIGURES, mistakes_section),
        ]
    if item.kind == "agreement":
        from pytest_mlms.show.pages.estimates import intervals_section

        return [Section("Agreement against its limits", _FIGURES, intervals_section)]
    if item.kind == "performance":
        from pytest_mlms.show.pages.estimates import latency_section

        return [Section("Latency", _FIGURES, latency_section), *_of_trace(item)]
    if item.kind == "trace":
        return _of_trace(item)
    if item.kind == "upgrade":
        from pytest_mlms.show.pages.upgrade import (
            changes_section,
            layers_section,
            queries_section,
            worse_inputs_section,
        )

        return [
            Section("Inputs that got worst, from A to B", "_lines.html", worse_inputs_section),
            Section("What changed", _NOTED_FIGURES, changes_section),
            Section("Queries under load", _FIGURES, queries_section),
            Section("Layers that moved", _FIGURES, layers_section),
        ]
    return []


def _of_trace(item: ItemView) -> Sequence[Section]:
    """Return the sections of a trace, which items of performance have if they were traced."""
    if item.trace is None and "trace.npz" not in item.artifacts:
        return []
    from pytest_mlms.show.pages.structure import structure_section
    from pytest_mlms.show.pages.traces import trace_section

    return [
        Section("Where the time went", _NOTED_FIGURES, trace_section),
        Section("Structure and cost", "_structure.html", structure_section),
    ]
