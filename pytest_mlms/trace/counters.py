"""What the counters say: by phase, and by layer of a run that read them between layers.

Pure functions of a trace.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_mlms.trace.correlate import Parents
from pytest_mlms.trace.spans import CounterSeries, Trace
from pytest_mlms.trace.tables import grouped, layers_of_run

__all__ = ["BY_LAYER", "BY_PHASE", "PHASES", "CounterRow", "PhaseRow", "counter_rows", "phase_rows"]

BY_LAYER = "layer+hardware"
"""The level of a run with the framework's layers and the counters between them."""

BY_PHASE = "application+hardware"
"""The level of a run with the phases of a request on the pytest side and the counters of that
process between them.
"""

PHASES = ("pre-process", "predict, through the agent", "post-process")

Array = NDArray[Any]


@dataclass(frozen=True)
class CounterRow:
    """A counter over one layer: what a call adds to it there, on average.

    What reading it adds is in that.
    """

    index: int
    layer: str
    type: str
    counter: str
    unit: str
    per_call: float
    calls: int


@dataclass(frozen=True)
class PhaseRow:
    """A counter over a phase of a request: what a call adds to it, on average, if it only goes up.

    Otherwise it is a state, such as a temperature: the least, mean and most of its readings.
    """

    phase: str
    counter: str
    unit: str
    per_call: float | None
    least: float | None
    mean: float | None
    most: float | None
    readings: int


def counter_rows(trace: Trace, parents: Parents) -> list[CounterRow]:
    """Return a row for each layer and counter, in the order in which layers run.

    Empty without a run by layer.
    """
    run = trace.run_at(BY_LAYER)
    keys, spans = layers_of_run(trace, parents, run)
    readings = [reading for reading in _readings(trace, run) if reading[0].rising]
    rows = []
    for index, (key, mine) in enumerate(grouped(keys, spans).items()):
        for series, time, value in readings:
            counts = _over(time, value, trace.spans.start[mine], trace.spans.end[mine], alone=True)
            if len(counts):
                rows.append(
                    CounterRow(
                        index,
                        key[0],
                        key[1],
                        series.name,
                        series.unit,
                        float(counts.mean()),
                        len(counts),
                    )
                )
    return rows


def phase_rows(trace: Trace) -> list[PhaseRow]:
    """Return a row for each phase and counter: the phases of a request on this side, then the call
    in the agent.

    States belong to the agent's calls.
    """
    run, rows = trace.run_at(BY_PHASE), list[PhaseRow]()
    for phase in PHASES:
        mine = _named(trace, run, "application", phase)
        rows += [
            row for series in _readings(trace, run) for row in _phase(trace, phase, mine, *series)
        ]
    run = trace.run_at("hardware")
    mine = _named(trace, run, "model", "predict")
    return rows + [
        row for series in _readings(trace, run) for row in _phase(trace, "predict", mine, *series)
    ]


def _named(trace: Trace, run: int | None, level: str, name: str) -> Array:
    spans, wanted = trace.spans, trace.strings.index(name) if name in trace.strings else -1
    return np.flatnonzero(
        spans.at(level) & (spans.run == (-1 if run is None else run)) & (spans.name == wanted)
    )


def _phase(
    trace: Trace, phase: str, spans: Array, series: CounterSeries, time: Array, value: Array
) -> Iterator[PhaseRow]:
    """Yield the row of a counter, if it was read around the phase's spans."""
    if not series.rising:
        states = (
            (float(value.min()), float(value.mean()), float(value.max())) if len(value) else None
        )
        if states:
            yield PhaseRow(phase, series.name, series.unit, None, *states, len(value))
        return
    counts = _over(time, value, trace.spans.start[spans], trace.spans.end[spans])
    if len(counts):
        yield PhaseRow(
            phase, series.name, series.unit, float(counts.mean()), None, None, None, len(value)
        )


def _readings(trace: Trace, run: int | None) -> Iterator[tuple[CounterSeries, Array, Array]]:
    """Yield each counter of a run with its readings by time."""
    for index, series in enumerate(trace.series):
        if series.run == run:
            mine = np.flatnonzero(trace.counters.series == index)
            mine = mine[np.argsort(trace.counters.time[mine], kind="stable")]
            yield series, trace.counters.time[mine], trace.counters.value[mine]


def _over(time: Array, value: Array, start: Array, end: Array, alone: bool = False) -> Array:
    """Return what was counted over intervals: from the last reading before each to the first
    behind; others drop out.

    So do, if they must be ``alone``, those whose readings have another between them: no layers that
    ran by themselves.
    """
    before = np.searchsorted(time, start, side="right") - 1
    after = np.searchsorted(time, end, side="left")
    good = (before >= 0) & (after < len(time))
    if alone:
        good &= after == before + 1
    return np.asarray(value[after[good]] - value[before[good]])
