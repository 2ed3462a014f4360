"""Decisions about manifests of MLModelScope, each once for all manifests that it is about."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pytest_mlms.views.item import ItemView

__all__ = ["ORIGINALS_TITLE", "original_lines"]

ORIGINALS_TITLE = "mlms: decided about original manifests"


def original_lines(items: Sequence[ItemView]) -> Iterator[str]:
    """Yield each decision and warning with the first line that it is about.

    Other versions of frameworks than asked for come first, then the most frequent texts.
    """
    yield from _other_versions(items)
    places: dict[str, dict[str, None]] = {}
    for item in items:
        if item.original is None:
            continue
        for remark in item.original.warnings:
            places.setdefault(f"warning: {remark.text}", {})[remark.place] = None
        for remark in item.original.decisions:
            places.setdefault(remark.text, {})[remark.place] = None
    for text in sorted(places, key=lambda text: -len(places[text])):
        yield f"{_shown(list(places[text]))}: {text}"


def _other_versions(items: Sequence[ItemView]) -> Iterator[str]:
    files: dict[str, dict[str, None]] = {}
    for item in items:
        if item.other_version:
            files.setdefault(item.other_version, {})[item.manifest.path] = None
    for text, found in files.items():
        yield f"{_shown(list(found))}: {text}"


def _shown(places: Sequence[str]) -> str:
    """Return the first of some places, and the number of the others."""
    others = len(places) - 1
    return f"{places[0]} and {others:,} more" if others else places[0]
