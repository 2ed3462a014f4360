"""What earlier runs took for each item, from their JSON lines: the longest are begun first."""

from __future__ import annotations

from pathlib import Path

from pytest_mlms.report.results_reader import read_results

__all__ = ["durations"]

_RUNS = 3


def durations(results: Path) -> dict[str, float]:
    """Return the seconds of each item in the last runs below ``results``, the latest one's where
    several have it.
    """
    found: dict[str, float] = {}
    for run in sorted(results.glob("*/results.jsonl"))[-_RUNS:]:
        for line in read_results(run):
            if (
                line.get("type") == "item"
                and isinstance(line.get("seconds"), dict)
                and line["verdict"] != "SKIPPED"
            ):
                found[line["nodeid"]] = sum(line["seconds"].values())
    return found
