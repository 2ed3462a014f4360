"""Durations of items in earlier runs, read from their results."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pytest_mlms.report.results_reader import read_results

__all__ = ["earlier_durations"]

_RUNS = 3


def earlier_durations(results: Path) -> dict[str, float]:
    """Return the seconds of each item, by node id, in the last three runs below ``results``.

    Where several runs have an item, the latest one counts. Skipped items are left out.
    """
    found = {}
    runs = sorted(results.glob("*/results.jsonl"))
    for run in runs[-_RUNS:]:
        for line in read_results(run):
            if _has_duration(line):
                found[line["nodeid"]] = sum(line["seconds"].values())
    return found


def _has_duration(line: Mapping[str, Any]) -> bool:
    if line.get("type") != "item" or line["verdict"] == "SKIPPED":
        return False
    return isinstance(line.get("seconds"), dict)
