"""Table of a request on the pytest side: its phases and the steps of the pipeline."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pytest_mlms.measure.trace.grouping import grouped, trimmed_mean
from pytest_mlms.measure.trace.intervals import Intervals, enclosing
from pytest_mlms.measure.trace.spans import Spans, Trace

Array = NDArray[Any]


@dataclass(frozen=True)
class StepRow:
    """A phase of a request, or a step inside of the phase ``within``.

    ``calls`` is how often a request runs it. ``latency_us`` is the time of all its calls in a
    request, in microseconds, and ``share`` is its part of the whole request.
    """

    step: str
    within: str
    calls: float
    latency_us: float
    share: float


class _StepKey(NamedTuple):
    step: str
    within: str


_REQUEST = _StepKey("request", "")


def step_rows(trace: Trace) -> list[StepRow]:
    """Return a row for the request, each phase and each step, in the order in which they begin.

    Empty without a run at the level ``application``.
    """
    run = trace.run_at("application")
    spans = trace.spans
    steps = spans.find("application", run)
    start = spans.start[steps]
    end = spans.end[steps]
    steps = steps[np.lexsort((-end, start))]
    last_request = int(spans.request[steps].max(initial=-1))
    requests = last_request + 1
    groups = grouped(_step_keys(trace, steps), steps)
    whole = math.nan
    if _REQUEST in groups:
        whole = _microseconds(spans, groups[_REQUEST], requests)
    rows = []
    for key, same in groups.items():
        latency_us = _microseconds(spans, same, requests)
        row = StepRow(
            step=key.step,
            within=key.within,
            calls=len(same) / requests,
            latency_us=latency_us,
            share=latency_us / whole,
        )
        rows.append(row)
    return rows


def _microseconds(spans: Spans, steps: Array, requests: int) -> float:
    """Return the trimmed mean over requests of the time that the steps take in each."""
    durations = spans.duration[steps]
    of_step = spans.request[steps]
    of_request = np.bincount(of_step, durations, requests)
    return trimmed_mean(of_request) / 1000


def _step_keys(trace: Trace, steps: Array) -> list[_StepKey]:
    """Return the key of each of the steps, which are sorted by (start, -end)."""
    spans = trace.spans
    names = trace.texts(spans.name[steps])
    around = enclosing(Intervals(spans.start[steps], spans.end[steps])).index.tolist()
    return [
        _StepKey(name, names[outer] if outer >= 0 else "")
        for name, outer in zip(names, around, strict=True)
    ]
