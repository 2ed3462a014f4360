"""Summary of a run in one line: models, verdicts, and what was measured, undecided or not gated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from pytest_mlms.core.records import Verdict
from pytest_mlms.provide.stacks.labels import label_of
from pytest_mlms.show.pages.item import ItemView
from pytest_mlms.show.pages.numbers import verdict_words

_GATED_BY_LIMITS = ("accuracy", "performance", "agreement", "soak")


def summary_line(results: Iterable[ItemView]) -> str:
    """Return the summary of a run; of an item that ran more than once the last result counts."""
    items = {result.nodeid: result for result in results}.values()
    models = {(item.manifest.path, item.manifest.name) for item in items}
    measured = sum(map(is_measured, items))
    counts = count_verdicts(items)
    ungated = len([item for item in items if not is_gated(item)])
    noun = "model" if len(models) == 1 else "models"
    tail = f"{measured:,} measured, {ungated:,} not gated"
    return f"mlms: {len(models):,} {noun}: {counts}; {tail}"


def is_measured(item: ItemView) -> bool:
    """Return whether an item measured anything."""
    return bool(item.estimates or item.comparisons or item.quantities or item.trace)


def is_gated(item: ItemView) -> bool:
    """Return False for an item whose measurements nothing judges.

    A trace judges nothing, and is not expected to. An item of one of two hosts is judged by their
    comparison, and a user's test judges its own quantities.
    """
    if item.kind not in _GATED_BY_LIMITS or not item.estimates:
        return True
    return bool(item.limits) or label_of(item.stack.name) is not None


def count_verdicts(items: Iterable[ItemView]) -> str:
    """Return how many items have each verdict, the worst first; "" without items."""
    counts = Counter(item.verdict for item in items)
    parts = []
    for verdict in Verdict:  # worst first
        if counts[verdict]:
            parts.append(f"{counts[verdict]:,} {verdict_words(verdict)}")
    return ", ".join(parts)
