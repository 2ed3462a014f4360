"""Items of a report, with as much of each as the size of the report allows.

Those that are open come first, with all they have, the worst first. Then all others get their
tables, and last their pictures, if those of all fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from markupsafe import Markup

from pytest_mlms.core.records import Verdict
from pytest_mlms.show.pages.findings import findings_of
from pytest_mlms.show.pages.html import environment
from pytest_mlms.show.pages.item import ItemView
from pytest_mlms.show.pages.sections import SECTIONS, sections_of

Extent = Literal["row", "tables", "figures"]
"""A row has the verdict, numbers and command; tables also the rest but pictures."""


class Appearance(NamedTuple):
    """Properties of the report that change how items look.

    ``names_run`` has each item name its run, ``folds`` those that passed open by a click, and
    ``places_differ`` is whether these have different stacks or machines to tell.
    """

    names_run: bool
    folds: bool
    places_differ: bool


class RenderedItems(NamedTuple):
    """The HTML of open and of folded items, and the number of items that have less than all."""

    open: Sequence[Markup]
    folded: Sequence[Markup]
    without_figures: int
    without_tables: int


def bytes_of(text: str) -> int:
    """Return the size of a text in the file."""
    return len(text.encode())


def render_items(
    items: Sequence[ItemView], appearance: Appearance, most_bytes: int
) -> RenderedItems:
    """Return items, worst first, within so many bytes; only their rows may be more than these."""
    filling = _Filling(items, appearance, most_bytes)
    filling.fill()
    return filling.rendered()


class _Filling:
    """Items that are rows at first and get more while bytes are left."""

    def __init__(self, items: Sequence[ItemView], appearance: Appearance, most_bytes: int) -> None:
        self._items = items
        self._appearance = appearance
        self._texts = [self._html(item, "row") for item in items]
        self._extents: list[Extent] = ["row"] * len(items)
        self._left = most_bytes - sum(map(bytes_of, self._texts))

    def fill(self) -> None:
        """Use the bytes that are left."""
        numbers = range(len(self._items))
        opened = [number for number in numbers if _is_open(self._items[number])]
        others = [number for number in numbers if not _is_open(self._items[number])]
        for number in opened:
            if not self._grow(number, "figures"):
                break
        for number in numbers:
            if self._extents[number] == "row":
                self._grow(number, "tables")
        if all(extent != "row" for extent in self._extents):
            self._add_all_figures(others)

    def _grow(self, number: int, extent: Extent) -> bool:
        """Replace an item's text by a longer one; return False where the bytes don't suffice."""
        if self._left <= 0:
            return False
        text = self._html(self._items[number], extent)
        size = bytes_of(text) - bytes_of(self._texts[number])
        if size > self._left:
            return False
        self._left -= size
        self._texts[number] = text
        self._extents[number] = extent
        return True

    def _add_all_figures(self, numbers: Sequence[int]) -> None:
        """Add the pictures of these items, of all or of none."""
        before = (list(self._texts), list(self._extents), self._left)
        if not all(self._grow(number, "figures") for number in numbers):
            self._texts, self._extents, self._left = before

    def _html(self, item: ItemView, extent: Extent) -> Markup:
        template = environment().get_template("_item.html")
        is_open = _is_open(item)
        text = template.render(
            item=item,
            run=item.run if self._appearance.names_run else "",
            findings=findings_of(item),
            sections=list(sections_of(item)) if extent == "figures" else (),
            is_open=is_open,
            is_unfolded=not self._appearance.folds,
            has_place=is_open or self._appearance.places_differ,
            details=extent != "row",
        )
        return Markup(text)

    def rendered(self) -> RenderedItems:
        """Return the items as they are now."""
        pairs = list(zip(self._items, self._texts, strict=True))
        extents = list(zip(self._items, self._extents, strict=True))
        return RenderedItems(
            open=[text for item, text in pairs if _is_open(item)],
            folded=[text for item, text in pairs if not _is_open(item)],
            without_figures=sum(
                extent != "figures" and item.kind in SECTIONS for item, extent in extents
            ),
            without_tables=self._extents.count("row"),
        )


def _is_open(item: ItemView) -> bool:
    return item.is_bad or item.verdict is Verdict.INCONCLUSIVE
