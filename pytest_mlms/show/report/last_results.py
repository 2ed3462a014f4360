"""Results of a run by item: of an item that ran more than once the last one counts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

Result = Mapping[str, Any]
"""An item's line of results.jsonl."""


def last_results(results: Iterable[Result]) -> list[Result]:
    """Return the last result of each item, in the order in which items came first."""
    return list({result["nodeid"]: result for result in results}.values())
