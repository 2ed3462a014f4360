"""Results of a run by item: of an item that ran more than once the last one counts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from pytest_mlms.records import Verdict

__all__ = ["Result", "badness", "last_results", "worst_first"]

Result = Mapping[str, Any]
"""An item's line of results.jsonl."""

_WORST_FIRST = [verdict.value for verdict in Verdict]


def last_results(results: Iterable[Result]) -> list[Result]:
    """Return the last result of each item, in the order in which items came first."""
    return list({result["nodeid"]: result for result in results}.values())


def worst_first(results: Iterable[Result]) -> list[Result]:
    """Return results by verdict, then by their margin to the nearest limit."""
    return sorted(results, key=badness)


def badness(result: Result) -> tuple[int, float]:
    """Return the sort key of an item."""
    margin = result.get("margin")
    if margin is None:
        margin = math.inf
    return _WORST_FIRST.index(result["verdict"]), margin
