"""Print what each level of a trace costs, from the results of a run with --mlms-trace: a table in
Markdown.

Called as: python manifests/alexnet/overhead.py mlms-results/latest

Each level is measured in a process of its own, over calls without a probe just before and behind:
+5 % (40) is five percent over those, of 40 traced calls. XSP's levels add up in the same way:
kernels are measured with layers on.
"""

import json
import sys
from pathlib import Path
from typing import Any

from pytest_mlms.units import format_quantity

Item = dict[str, Any]
LEVELS = ("layer", "library", "kernel", "hardware", "layer+hardware")


def read(folder: Path) -> list[Item]:
    """Return the items of a run that have a trace."""
    lines = [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]
    return [
        line for line in lines if line.get("trace") and line["trace"]["runs"][0].get("plain_us")
    ]


def runs(item: Item) -> dict[str, Item]:
    """Return the run of each level that was seen."""
    found = [
        run
        for run in item["trace"]["runs"]
        if not run.get("void") and run.get("overhead") is not None
    ]
    return {run["level"]: run for run in found}


def row(item: Item, levels: list[str]) -> list[str]:
    """Return a framework's cells."""
    name, mine, covered = item["framework"], runs(item), item["trace"]["coverage"]
    cells = [
        f"{100 * mine[level]['overhead']:+.0f} % ({mine[level]['calls']})" if level in mine else "-"
        for level in levels
    ]
    untraced = format_quantity(item["trace"]["runs"][0]["plain_us"] / 1e6, "s")
    share = "-" if covered is None else f"{100 * covered:.1f} % of {item['trace']['layers']}"
    return [f"{name} {item['versions'][name]}", untraced, share, *cells]


def table(items: list[Item]) -> str:
    """Return a row a framework, the fastest first, and a column for each level that any of them
    has.
    """
    levels = [level for level in LEVELS if any(level in runs(item) for item in items)]
    ordered = sorted(items, key=lambda item: item["trace"]["runs"][0]["plain_us"])
    head = [
        ", ".join(sorted({f"{item['case'].split('-', 1)[1]}" for item in items})),
        "untraced",
        "layers' share",
    ]
    rows = [
        [*head, *(f"+{level}" for level in levels)],
        ["---", *("---:" for _ in (*head[1:], *levels))],
    ]
    return "\n".join(
        f"| {' | '.join(each)} |" for each in [*rows, *(row(item, levels) for item in ordered)]
    )


def main() -> None:
    """Print the table of the folder that the command line names."""
    found = read(Path(sys.argv[1]))
    if not found:
        sys.exit(f"no traces in {sys.argv[1]}; run pytest with --mlms-trace")
    print(table(found))


if __name__ == "__main__":
    main()
