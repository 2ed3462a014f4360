"""Where a request spends its time on the pytest side: its phases and the pipeline's steps.

Pure functions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pytest_mlms.trace.spans import Trace
from pytest_mlms.trace.tables import grouped, trimmed_mean

__all__ = ["StepRow", "step_rows"]


@dataclass(frozen=True)
class StepRow:
    """A phase of a request, or a step inside of one (``within``).

    Microseconds in a request, and its share of that.
    """

    step: str
    within: str
    calls: float
    latency_us: float
    share: float


def step_rows(trace: Trace) -> list[StepRow]:
    """Return a row for the request, each phase and each step, in the order in which they begin.

    Empty without a run.
    """
    spans, run = trace.spans, trace.run_at("application")
    if run is None:
        return []
    mine = np.flatnonzero(spans.at("application") & (spans.run == run))
    mine = mine[np.lexsort((-spans.end[mine], spans.start[mine]))]
    keys = [(trace.strings[spans.name[one]], _within(trace, mine, one)) for one in mine.tolist()]
    requests = int(spans.request[mine].max(initial=-1)) + 1
    latencies = {
        key: trimmed_mean(np.bincount(spans.request[group], spans.duration[group], requests)) / 1000
        for key, group in grouped(keys, mine).items()
    }
    whole = latencies.get(("request", ""), float("nan"))
    return [
        StepRow(name, within, keys.count((name, within)) / requests, us, us / whole)
        for (name, within), us in latencies.items()
    ]


def _within(trace: Trace, spans: NDArray[np.int64], one: int) -> str:
    """Return the name of the smallest of ``spans``, sorted by start, that ``one`` lies in."""
    all_ = trace.spans
    around = spans[
        (all_.start[spans] <= all_.start[one]) & (all_.end[spans] >= all_.end[one]) & (spans != one)
    ]
    return trace.strings[all_.name[around[-1]]] if len(around) else ""
