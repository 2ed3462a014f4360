"""Table of the sections that a report and a page show of an item, by its kind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from markupsafe import Markup

from pytest_mlms.show.pages import (
    accuracy,
    performance,
    structure_section,
    traces_section,
    upgrade_load,
    upgrade_section,
)
from pytest_mlms.show.pages.html import environment
from pytest_mlms.show.pages.item import ItemView
from pytest_mlms.show.pages.section import Section

SECTIONS: Mapping[str, Sequence[Section]] = {
    "accuracy": accuracy.ACCURACY,
    "agreement": accuracy.AGREEMENT,
    "performance": [performance.LATENCY, traces_section.TIME, structure_section.STRUCTURE],
    "trace": [traces_section.TIME, structure_section.STRUCTURE],
    "upgrade": [
        upgrade_section.INPUTS,
        upgrade_section.CHANGES,
        upgrade_load.QUERIES,
        upgrade_section.LAYERS,
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
