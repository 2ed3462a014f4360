"""What each layer counted, of a run that read the counters between layers. Pure functions of a trace."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_mlms.trace.correlate import Parents
from pytest_mlms.trace.spans import Trace
from pytest_mlms.trace.tables import grouped, layers_of_run

__all__ = ["BY_LAYER", "CounterRow", "counter_rows"]

BY_LAYER = "layer+hardware"
"""The level of a run with the framework's layers and the counters between them."""

Array = NDArray[Any]


@dataclass(frozen=True)
class CounterRow:
    """A counter over one layer: what a call adds to it there, on average; what reading it adds is in that."""

    index: int
    layer: str
    type: str
    counter: str
    unit: str
    per_call: float
    calls: int


def counter_rows(trace: Trace, parents: Parents) -> list[CounterRow]:
    """Return a row for each layer and counter, in the order in which layers run; empty without a run by layer."""
    run = trace.run_at(BY_LAYER)
    keys, spans = layers_of_run(trace, parents, run)
    readings = list(_readings(trace, run))
    rows = []
    for index, (key, mine) in enumerate(grouped(keys, spans).items()):
        for name, unit, time, value in readings:
            counts = _over(time, value, trace.spans.start[mine], trace.spans.end[mine])
            if len(counts):
                rows.append(CounterRow(index, key[0], key[1], name, unit, float(counts.mean()), len(counts)))
    return rows


def _readings(trace: Trace, run: int | None) -> Iterator[tuple[str, str, Array, Array]]:
    """Yield each counter of a run with its readings by time."""
    for index, series in enumerate(trace.series):
        if series.run == run:
            mine = np.flatnonzero(trace.counters.series == index)
            mine = mine[np.argsort(trace.counters.time[mine], kind="stable")]
            yield series.name, series.unit, trace.counters.time[mine], trace.counters.value[mine]


def _over(time: Array, value: Array, start: Array, end: Array) -> Array:
    """Return what was counted over intervals: from the last reading before each to the first behind; others drop out.

    An interval whose readings have another between them is no layer that ran by itself.
    """
    before = np.searchsorted(time, start, side="right") - 1
    after = np.searchsorted(time, end, side="left")
    alone = (before >= 0) & (after == before + 1) & (after < len(time))
    return np.asarray(value[after[alone]] - value[before[alone]])
