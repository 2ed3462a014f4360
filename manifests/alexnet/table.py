"""Print the latency of a batch by framework and batch size, as a table in Markdown.

Called as: python manifests/alexnet/table.py [--cpu] mlms-results/latest…

With --cpu it is the CPU time of a batch, over all threads, in place of the median latency: with one
thread much the same where nothing else runs, and of use where something does. Both are means over
processes, with Student's interval.
"""

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np

from pytest_mlms.core.statistics import student_interval
from pytest_mlms.core.units import format_quantity


class Item(NamedTuple):
    """A performance item that has a result, and the folder of its run."""

    folder: Path
    framework: str
    version: str
    batch_size: int
    p50: Mapping[str, Any]
    artifacts: Mapping[str, str]


class Seconds(NamedTuple):
    """A mean over processes, and the upper end of its interval, None where there is none."""

    value: float
    high: float | None


def read(folder: Path) -> list[Item]:
    """Return the performance items of a run that have a result."""
    found = []
    for line in (folder / "results.jsonl").read_text().splitlines():
        facts = json.loads(line)
        if facts.get("kind") == "performance" and facts.get("estimates"):
            found.append(_item(folder, facts))
    return found


def _item(folder: Path, facts: Mapping[str, Any]) -> Item:
    framework = facts["framework"]
    return Item(
        folder=folder,
        framework=framework,
        version=facts["versions"][framework],
        batch_size=facts["batch_size"],
        p50=facts["estimates"]["latency_p50"],
        artifacts=facts.get("artifacts", {}),
    )


def latency(item: Item) -> Seconds:
    """Return the median latency."""
    return Seconds(item.p50["value"], item.p50["high"])


def cpu_time(item: Item) -> Seconds:
    """Return the CPU time of a call, from the samples of each process."""
    means = []
    for name, path in item.artifacts.items():
        if name.startswith("samples-"):
            with np.load(item.folder / path) as times:
                seconds = times["cpu"][-1] - times["cpu"][0]
                means.append(float(seconds / times["at"][-1]))
    return Seconds(fmean(means), student_interval(means)[1])


def cell(seconds: Seconds | None) -> str:
    """Return the value, and how far its interval reaches."""
    if seconds is None:
        return "-"
    text = format_quantity(seconds.value, "s")
    if seconds.high is None or not np.isfinite(seconds.high):
        return text
    spread = seconds.high / seconds.value - 1
    return f"{text} ±{100 * spread:.0f} %"


def table(items: list[Item], of: Callable[[Item], Seconds] = latency) -> str:
    """Return a row for each framework and a column for each batch size.

    The fastest at its quickest batch is first.
    """
    by_framework: dict[str, dict[int, Seconds]] = {}
    versions: dict[str, str] = {}
    for item in items:
        by_size = by_framework.setdefault(item.framework, {})
        by_size[item.batch_size] = of(item)
        versions.setdefault(item.framework, item.version)
    sizes = sorted({item.batch_size for item in items})
    rows = [
        ["framework", *(f"batch of {size}" for size in sizes)],
        ["---", *("---:" for _ in sizes)],
    ]

    def quickest(framework: str) -> float:
        return min(seconds.value for seconds in by_framework[framework].values())

    for framework in sorted(sorted(by_framework), key=quickest):
        cells = [cell(by_framework[framework].get(size)) for size in sizes]
        rows.append([f"{framework} {versions[framework]}", *cells])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def main() -> None:
    """Print the table of the folders that the command line names."""
    arguments = sys.argv[1:]
    of = latency
    if "--cpu" in arguments:
        of = cpu_time
    folders = [Path(argument) for argument in arguments if argument != "--cpu"]
    items = []
    for folder in folders:
        items += read(folder)
    if not items:
        sys.exit(f"no latencies in {folders}")
    print(table(items, of))


if __name__ == "__main__":
    main()
