"""A section of an item: a heading, and pictures or tables under it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from pytest_mlms.show.pages.item import ItemView

FIGURES = "_figures.html"
"""The template of a section of pictures: its context has ``figures``, a list of ``Figure``."""

NOTED_FIGURES = "_noted_figures.html"
"""The template of pictures with notes: ``figures``, and ``notes``, a list of texts."""

Context = Mapping[str, Any]
"""The names that a template uses."""


class Section(NamedTuple):
    """A section: its heading, the file of its template, and the function that fills it.

    ``context`` returns None where the item has nothing for it. It reads the item and the item's
    artifacts, of which any may be missing or broken.
    """

    title: str
    template: str
    context: Callable[[ItemView], Context | None]
