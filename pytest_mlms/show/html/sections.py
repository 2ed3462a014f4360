"""Table of the sections that a report and a page show of an item, by its kind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from markupsafe import Markup

from pytest_mlms.show.html import accuracy, performance, structure, traces, upgrade, upgrade_load
from pytest_mlms.show.html.pages import environment
from pytest_mlms.show.html.section import Section
from pytest_mlms.show.views.item import ItemView

SECTIONS: Mapping[str, Sequence[Section]] = {
    "accuracy": accuracy.ACCURACY,
    "agreement": accuracy.AGREEMENT,
    "performance": [performance.LATENCY, traces.TIME, structure.STRUCTURE],
    "trace": [traces.TIME, structure.STRUCTURE],
    "upgrade": [upgrade.INPUTS, upgrade.CHANGES, upgrade_load.QUERIES, upgrade.LAYERS],
}
"""Kind of item -> its sections, in the order in which they are shown."""


def sections_of(item: ItemView) -> Iterator[tuple[str, Markup]]:
    """Yield the heading and the content of each section that an item has."""
    for section in SECTIONS.get(item.kind, ()):
        context = section.context(item)
        if context is not None:
            template = environment().get_template(section.template)
            yield section.title, Markup(template.render(item=item, **context))
