"""Decisions about manifests of MLModelScope, each once for all manifests that it is about."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from pytest_mlms.show.pages.item import ItemView

ORIGINALS_TITLE = "mlms: decided about original manifests"


def original_lines(items: Sequence[ItemView]) -> Iterator[str]:
    """Yield each decision and warning with the first line that it is about.

    Other versions of frameworks than asked for come first, then the most frequent texts.
    """
    versions = _Places()
    remarks = _Places()
    for item in items:
        if item.other_version:
            versions[item.other_version][item.manifest.path] = None
        if item.original is None:
            continue
        for warning in item.original.warnings:
            remarks[f"warning: {warning.text}"][warning.place] = None
        for decision in item.original.decisions:
            remarks[decision.text][decision.place] = None
    yield from versions.lines()
    yield from remarks.lines(most_frequent_first=True)


class _Places(defaultdict[str, dict[str, None]]):
    """The places that each text is about, each once, in order."""

    def __init__(self) -> None:
        super().__init__(dict)

    def lines(self, most_frequent_first: bool = False) -> Iterator[str]:
        """Yield a line for each text."""
        texts = list(self)
        if most_frequent_first:
            texts.sort(key=lambda text: len(self[text]), reverse=True)
        for text in texts:
            yield f"{_shown(list(self[text]))}: {text}"


def _shown(places: Sequence[str]) -> str:
    """Return the first of some places, and the number of the others."""
    others = len(places) - 1
    return f"{places[0]} and {others:,} more" if others else places[0]
