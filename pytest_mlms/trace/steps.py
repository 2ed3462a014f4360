"""Table of a request on the pytest side: its phases and the steps of the pipeline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pytest_mlms.trace.grouping import grouped, trimmed_mean
from pytest_mlms.trace.spans import Trace

__all__ = ["StepRow", "step_rows"]

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
    if run is None:
        return []
    spans = trace.spans
    steps = np.flatnonzero(spans.at("application") & spans.in_run(run))
    order = np.lexsort((-spans.end[steps], spans.start[steps]))
    steps = steps[order]
    groups = grouped(_step_keys(trace, steps), steps)
    requests = int(spans.request[steps].max(initial=-1)) + 1
    latencies = {key: _microseconds(trace, same, requests) for key, same in groups.items()}
    whole = latencies.get(_REQUEST, float("nan"))
    rows = []
    for key, latency_us in latencies.items():
        calls = len(groups[key]) / requests
        rows.append(StepRow(key.step, key.within, calls, latency_us, latency_us / whole))
    return rows


def _microseconds(trace: Trace, steps: Array, requests: int) -> float:
    """Return the trimmed mean over requests of the time that the steps take in each."""
    durations = trace.spans.duration[steps]
    of_request = np.bincount(trace.spans.request[steps], durations, requests)
    return trimmed_mean(of_request) / 1000


def _step_keys(trace: Trace, steps: Array) -> list[_StepKey]:
    keys = []
    for step in steps.tolist():
        name: str = trace.strings[trace.spans.name[step]]
        keys.append(_StepKey(name, _name_around(trace, steps, step)))
    return keys


def _name_around(trace: Trace, steps: Array, step: int) -> str:
    """Return the name of the smallest of the steps, sorted by start, that contains ``step``."""
    start = trace.spans.start
    end = trace.spans.end
    starts_before = start[steps] <= start[step]
    ends_after = end[steps] >= end[step]
    around = steps[starts_before & ends_after & (steps != step)]
    if not len(around):
        return ""
    names = trace.texts(trace.spans.name[around])
    return names[-1]
