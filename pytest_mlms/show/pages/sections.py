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


class Section(NamedTuple):
    """A section: its heading, its macro in ``_parts.html``, and the function that fills it.

    ``context`` returns the macro's arguments, None where the item has nothing for it. It reads the
    item and the item's artifacts, of which any may be missing or broken.
    """

    title: str
    macro: str
    context: Callable[[ItemView], Context | None]


def sections_of(item: ItemView) -> Iterator[tuple[str, Markup]]:
    """Yield the heading and the content of each section that an item has."""
    parts = environment().get_template("_parts.html").module
    for section in _possible(item):
        context = section.context(item)
        if context is not None:
            yield section.title, getattr(parts, section.macro)(**context)


def _possible(item: ItemView) -> Sequence[Section]:
    """Return the sections of items of this kind, in the order in which they are shown."""
    if item.kind == "accuracy":
        from pytest_mlms.show.pages.estimates import intervals_section
        from pytest_mlms.show.pages.mistakes import mistakes_section
        from pytest_mlms.show.pages.worst_inputs import worst_inputs_section

        return [
            Section("Accuracy against its limits", "figures", intervals_section),
            Section("Worst inputs", "worst_inputs", worst_inputs_section),
            Section("Mistakes by class", "figures", mistakes_section),
        ]
    if item.kind == "agreement":
        from pytest_mlms.show.pages.estimates import intervals_section

        return [Section("Agreement against its limits", "figures", intervals_section)]
    if item.kind == "performance":
        from pytest_mlms.show.pages.estimates import latency_section

        return [Section("Latency", "figures", latency_section), *_of_trace(item)]
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
            Section("Inputs that got worst, from A to B", "lines", worse_inputs_section),
            Section("What changed", "figures", changes_section),
            Section("Queries under load", "figures", queries_section),
            Section("Layers that moved", "figures", layers_section),
        ]
    return []


def _of_trace(item: ItemView) -> Sequence[Section]:
    """Return the sections of a trace, which items of performance have if they were traced."""
    if item.trace is None and "trace.npz" not in item.artifacts:
        return []
    from pytest_mlms.show.pages.structure import structure_section
    from pytest_mlms.show.pages.traces import trace_section

    return [
        Section("Where the time went", "figures", trace_section),
        Section("Structure and cost", "structure", structure_section),
    ]
