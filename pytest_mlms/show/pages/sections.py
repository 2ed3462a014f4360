"""Sections of an item in reports and pages, by its kind: a heading, and pictures or tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from markupsafe import Markup

from pytest_mlms.show.pages.canvas import Context
from pytest_mlms.show.pages.estimates import intervals_section
from pytest_mlms.show.pages.html import environment
from pytest_mlms.show.pages.item import ItemView
from pytest_mlms.show.pages.latency import latency_section
from pytest_mlms.show.pages.mistakes import mistakes_section
from pytest_mlms.show.pages.structure import structure_section
from pytest_mlms.show.pages.traces import trace_section
from pytest_mlms.show.pages.upgrade import changes_section, layers_section, worse_inputs_section
from pytest_mlms.show.pages.upgrade_load import queries_section
from pytest_mlms.show.pages.worst_inputs import worst_inputs_section

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


_TIME = Section("Where the time went", _NOTED_FIGURES, trace_section)
_STRUCTURE = Section("Structure and cost", "_structure.html", structure_section)

SECTIONS: Mapping[str, Sequence[Section]] = {
    "accuracy": [
        Section("Accuracy against its limits", _FIGURES, intervals_section),
        Section("Worst inputs", "_worst_inputs.html", worst_inputs_section),
        Section("Mistakes by class", _FIGURES, mistakes_section),
    ],
    "agreement": [Section("Agreement against its limits", _FIGURES, intervals_section)],
    "performance": [Section("Latency", _FIGURES, latency_section), _TIME, _STRUCTURE],
    "trace": [_TIME, _STRUCTURE],
    "upgrade": [
        Section("Inputs that got worst, from A to B", "_lines.html", worse_inputs_section),
        Section("What changed", _NOTED_FIGURES, changes_section),
        Section("Queries under load", _FIGURES, queries_section),
        Section("Layers that moved", _FIGURES, layers_section),
    ],
}
"""Kind of item -> its sections, in the order in which they are shown."""


def sections_of(item: ItemView) -> Iterator[tuple[str, Markup]]:
    """Yield the heading and the content of each section that an item has."""
    for section in SECTIONS.get(item.kind, ()):
        context = section.context(item)
        if context is not None:
            template = environment().get_template(section.template)
            yield section.title, Markup(template.render(item=item, **context))
