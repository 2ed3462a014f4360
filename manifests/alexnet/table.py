"""Print the latency of a batch by framework and batch size, from the results of runs: a table in
Markdown.

Called as: python manifests/alexnet/table.py [--cpu] mlms-results/latest…

With --cpu it is the CPU time of a batch, over all threads, in place of the median latency: with one
thread much the same where nothing else runs, and of use where something does. Both are means over
processes, with Student's interval.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from pytest_mlms.statistics import student_interval
from pytest_mlms.units import format_quantity

Item = dict[str, Any]
Seconds = tuple[float, float]  # the mean, and the upper end of its interval


def read(folder: Path) -> list[Item]:
    """Return the performance items of a run that have a result, with the run's folder."""
    lines = [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]
    return [
        {**x, "folder": folder}
        for x in lines
        if x.get("kind") == "performance" and x.get("estimates")
    ]


def latency(item: Item) -> Seconds:
    """Return the median latency."""
    estimate = item["estimates"]["latency_p50"]
    return estimate["value"], estimate["high"]


def cpu_time(item: Item) -> Seconds:
    """Return the CPU time of a call, from the samples of each process."""
    each = []
    for name, path in item["artifacts"].items():
        if name.startswith("samples-"):
            with np.load(item["folder"] / path) as times:
                each.append(float((times["cpu"][-1] - times["cpu"][0]) / times["at"][-1]))
    return fmean(each), student_interval(each)[1]


def cell(seconds: Seconds) -> str:
    """Return the value, and how far its interval reaches."""
    value, high = seconds
    spread = f" ±{100 * (high / value - 1):.0f} %" if high is not None and np.isfinite(high) else ""
    return format_quantity(value, "s") + spread


def table(items: list[Item], of: Callable[[Item], Seconds] = latency) -> str:
    """Return a row a framework, the fastest at the smallest batch size first, and a column a batch
    size.
    """
    by_place = {(item["framework"], item["batch_size"]): of(item) for item in items}
    sizes = sorted({size for _, size in by_place})

    def least(framework: str) -> float:
        return min(value for (name, _), (value, _) in by_place.items() if name == framework)

    rows = [
        ["framework", *(f"batch of {size}" for size in sizes)],
        ["---", *("---:" for _ in sizes)],
    ]
    for name in sorted({name for name, _ in by_place}, key=least):
        version = next(item["versions"][name] for item in items if item["framework"] == name)
        found = [by_place.get((name, size)) for size in sizes]
        rows.append(
            [f"{name} {version}", *(cell(seconds) if seconds else "-" for seconds in found)]
        )
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def main() -> None:
    """Print the table of the folders that the command line names."""
    words = sys.argv[1:]
    folders = [Path(word) for word in words if word != "--cpu"]
    found = [item for folder in folders for item in read(folder)]
    if not found:
        sys.exit(f"no latencies in {folders}")
    print(table(found, cpu_time if "--cpu" in words else latency))


if __name__ == "__main__":
    main()
