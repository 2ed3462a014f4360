"""What an item's line says of its trace: the largest layers, and what of the levels asked for was
not seen, and why.

Pure functions of a trace.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pytest_mlms.trace.spans import Trace
from pytest_mlms.trace.tables import coverage, layer_rows, parents_of

__all__ = ["summarize"]


def summarize(trace: Trace) -> dict[str, Any]:
    """Return what the item's line says of its trace, as plain values.

    Docs/results.md has the fields.
    """
    parents = parents_of(trace)
    layers = sorted(layer_rows(trace, parents), key=lambda row: -row.latency_us)
    slowest = [
        {"name": row.name, "type": row.type, "us": row.latency_us, "share": row.share}
        for row in layers[:5]
    ]
    return {
        "levels": trace.about["levels"],
        "runs": [dict(run) for run in trace.runs],
        "coverage": coverage(trace, parents),
        "layers": len(layers),
        "slowest": slowest,
        "ambiguous": int(parents.ambiguous.sum()),
        "unseen": (unseen := dict(_unseen(trace))),
        "faults": {level: fault for level, fault in _faults(trace) if level not in unseen},
    }


def _unseen(trace: Trace) -> Iterator[tuple[str, str]]:
    """Yield each level that was asked for and has nothing to show, with the reasons."""
    for level in trace.about["levels"]:
        if level in ("application", "model"):
            continue
        run = trace.run_at(level)
        seen = trace.spans.at(level) & (trace.spans.run == (-1 if run is None else run))
        if not seen.any() and not any(series.run == run for series in trace.series):
            yield level, _reasons([one for one in trace.runs if one["level"] == level])


def _faults(trace: Trace) -> Iterator[tuple[str, str]]:
    """Yield each run that counts and that something went wrong in, so that it saw less than it
    should have.
    """
    for run in trace.runs:
        faults = [run.get("fault"), *(word["fault"] for word in run.get("probes", ()))]
        if any(faults) and not run.get("void"):
            yield run["level"], "; ".join(filter(None, faults))


def _reasons(runs: Sequence[Mapping[str, Any]]) -> str:
    probes: dict[str, list[str]] = {}
    for word in (word for run in runs for word in run["probes"] if word["reason"]):
        probes.setdefault(word["reason"], []).append(word["probe"])
    words = [f"{', '.join(names)}: {reason}" for reason, names in probes.items()]
    faults = [run["fault"] for run in runs if run["fault"]]
    return "; ".join(faults + words) or "nothing was seen of it"
