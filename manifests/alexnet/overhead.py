"""Print the overhead of each trace level as a table in Markdown, from results with --mlms-trace.

Called as: python manifests/alexnet/overhead.py mlms-results/latest

Each level is measured in a process of its own, against calls without a probe just before and after.
``+5 % (40)`` is five percent over those, of 40 traced calls. As in XSP, levels add up: kernels are
measured with layers on.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

from pytest_mlms.core.serialization import from_plain
from pytest_mlms.core.units import format_quantity
from pytest_mlms.measure.trace.records import TraceRun, TraceSummary

LEVELS = ("layer", "library", "kernel", "hardware", "layer+hardware")


class TracedItem(NamedTuple):
    """An item: its case without the framework, the framework and its version, and its trace."""

    case: str
    framework: str
    version: str
    untraced_us: float
    summary: TraceSummary

    def run(self, level: str) -> TraceRun | None:
        """Return the run of a level whose overhead was measured."""
        found = None
        for run in self.summary.runs_at(level):
            if run.overhead is not None and not run.void:
                found = run
        return found


def read_items(folder: Path) -> list[TracedItem]:
    """Return the items of a run that have a trace with calls without a probe."""
    items = []
    for line in (folder / "results.jsonl").read_text().splitlines():
        result = json.loads(line)
        if not result.get("trace"):
            continue
        summary = from_plain(TraceSummary, result["trace"])
        untraced_us = summary.runs[0].plain_us
        if untraced_us is not None:
            items.append(traced_item(result, untraced_us, summary))
    return items


def traced_item(result: dict[str, Any], untraced_us: float, summary: TraceSummary) -> TracedItem:
    """Return the item of a line of the results."""
    framework = result["framework"]
    _, case = result["case"].split("-", 1)
    version = result["versions"][framework]
    return TracedItem(case, framework, version, untraced_us, summary)


def cells(item: TracedItem, levels: list[str]) -> list[str]:
    """Return the cells of an item: its framework, the untraced call, and each overhead."""
    untraced = format_quantity(item.untraced_us / 1e6, "s")
    overheads = [overhead_cell(item.run(level)) for level in levels]
    return [f"{item.framework} {item.version}", untraced, share_cell(item.summary), *overheads]


def share_cell(summary: TraceSummary) -> str:
    """Return the share of the layers, and their number."""
    if summary.coverage is None:
        return "-"
    return f"{100 * summary.coverage:.1f} % of {summary.layers}"


def overhead_cell(run: TraceRun | None) -> str:
    """Return an overhead, and the number of traced calls."""
    if run is None or run.overhead is None:
        return "-"
    return f"{100 * run.overhead:+.0f} % ({run.calls})"


def table(items: list[TracedItem]) -> str:
    """Return a row for each item, the fastest first, with the levels that any of them has."""
    levels = [level for level in LEVELS if any(item.run(level) for item in items)]
    cases = ", ".join(sorted({item.case for item in items}))
    header = [cases, "untraced", "layers' share"]
    header += [f"+{level}" for level in levels]
    alignment = ["---"] + ["---:"] * (len(header) - 1)
    rows = [header, alignment]
    for item in sorted(items, key=lambda item: item.untraced_us):
        rows.append(cells(item, levels))
    lines = []
    for row in rows:
        joined = " | ".join(row)
        lines.append(f"| {joined} |")
    return "\n".join(lines)


def main() -> None:
    """Print the table of the folder that the command line names."""
    folder = Path(sys.argv[1])
    items = read_items(folder)
    if not items:
        sys.exit(f"no traces in {folder}; run pytest with --mlms-trace")
    print(table(items))


if __name__ == "__main__":
    main()
