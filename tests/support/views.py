"""Views of lines that have only the fields that a test is about."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pytest_mlms.show.pages.item import ItemView
from pytest_mlms.show.pages.run import items_of

__all__ = ["REQUIRED", "view_of", "views_of"]

REQUIRED = {
    "nodeid": "m.yaml::test_performance[here-cpu-b8]",
    "kind": "performance",
    "verdict": "PASSED",
    "manifest": {"name": "digits"},
    "stack": {"name": "here"},
}
"""The fields that the line of every item has."""


def views_of(lines: Iterable[Mapping[str, Any]]) -> list[ItemView]:
    """Return the items of lines, to which fields that every item has are added."""
    return items_of([{**REQUIRED, **line} for line in lines], Path())


def view_of(line: Mapping[str, Any]) -> ItemView:
    (item,) = views_of([line])
    return item
