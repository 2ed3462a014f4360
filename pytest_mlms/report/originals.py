"""Decisions about manifests of MLModelScope, each once for all manifests that it is about."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

__all__ = ["ORIGINALS_TITLE", "original_lines"]

ORIGINALS_TITLE = "mlms: decided about original manifests"


def original_lines(results: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield each decision and warning with the first line that it is about.

    Other versions of frameworks than asked for come first, then the most frequent texts.
    """
    yield from _other_versions(results)
    places: dict[str, dict[str, None]] = {}
    for result in results:
        original = result.get("original") or {}
        for key, mark in (("warnings", "warning: "), ("decisions", "")):
            for remark in original.get(key, ()):
                found = places.setdefault(f"{mark}{remark['text']}", {})
                found[remark["place"]] = None
    for text in sorted(places, key=lambda text: -len(places[text])):
        yield f"{_shown(list(places[text]))}: {text}"


def _other_versions(results: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    files: dict[str, dict[str, None]] = {}
    for result in results:
        text = result.get("other_version")
        if text:
            files.setdefault(text, {})[result["manifest"]["path"]] = None
    for text, found in files.items():
        yield f"{_shown(list(found))}: {text}"


def _shown(places: Sequence[str]) -> str:
    """Return the first of some places, and the number of the others."""
    others = len(places) - 1
    return f"{places[0]} and {others:,} more" if others else places[0]
