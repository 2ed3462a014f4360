"""Counter tables of a trace: one row per phase and counter, and one row per layer and counter."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pytest_mlms.core.arrays import Array
from pytest_mlms.measure.trace import BY_LAYER, BY_PHASE, PHASES
from pytest_mlms.measure.trace.spans import CounterSeries, Trace
from pytest_mlms.measure.trace.tables import layers_of_run


@dataclass(frozen=True)
class CounterRow:
    """A counter over one layer.

    ``per_call`` is the mean of what a call adds to it, which includes what reading it adds.
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
    """A counter over a phase of a request.

    ``per_call`` is the mean of what a call adds to a rising counter. ``least``, ``mean`` and
    ``most`` are those of the readings of a state. The others are None.
    """

    phase: str
    counter: str
    unit: str
    per_call: float | None
    least: float | None
    mean: float | None
    most: float | None
    readings: int


class _Readings(NamedTuple):
    """The readings of one counter, by time; ``moments`` are of all readings of its probe."""

    series: CounterSeries
    time: Array
    value: Array
    moments: Array


class _Differences(NamedTuple):
    """Counts over each of some spans, and whether one difference has no other inside."""

    counts: Array
    undivided: Array


def counter_rows(trace: Trace) -> list[CounterRow]:
    """Return a row for each layer and rising counter, in the order in which layers run.

    Empty without a run by layer. A layer counts only where no reading lies inside of it: otherwise
    it did not run by itself.
    """
    run = trace.run_at(BY_LAYER)
    layers = layers_of_run(trace, run)
    rising = [readings for readings in _readings_of(trace, run) if readings.series.rising]
    rows = []
    for index, (key, spans) in enumerate(layers.by_key().items()):
        for readings in rising:
            differences = _differences(trace, readings, spans)
            counts = differences.counts[differences.undivided]
            if not len(counts):
                continue
            row = CounterRow(
                index=index,
                layer=key.name,
                type=key.type,
                counter=readings.series.name,
                unit=readings.series.unit,
                per_call=float(counts.mean()),
                calls=len(counts),
            )
            rows.append(row)
    return rows


def phase_rows(trace: Trace) -> list[PhaseRow]:
    """Return a row for each phase and counter.

    The phases of a request on the pytest side come first, then the calls in the agent.
    """
    rows: list[PhaseRow] = []
    by_phase = trace.run_at(BY_PHASE)
    for phase in PHASES:
        rows += _rows_of_phase(trace, by_phase, "application", phase)
    rows += _rows_of_phase(trace, trace.run_at("hardware"), "model", "predict")
    return rows


def _rows_of_phase(trace: Trace, run: int | None, level: str, phase: str) -> Iterator[PhaseRow]:
    spans = _spans_named(trace, run, level, phase)
    for readings in _readings_of(trace, run):
        if readings.series.rising:
            yield from _rising_row(trace, phase, spans, readings)
        else:
            yield from _state_row(phase, readings)


def _rising_row(trace: Trace, phase: str, spans: Array, readings: _Readings) -> Iterator[PhaseRow]:
    """Yield the row of a rising counter if it was read around the spans of the phase."""
    counts = _differences(trace, readings, spans).counts
    if len(counts):
        yield PhaseRow(
            phase=phase,
            counter=readings.series.name,
            unit=readings.series.unit,
            per_call=float(counts.mean()),
            least=None,
            mean=None,
            most=None,
            readings=len(readings.value),
        )


def _state_row(phase: str, readings: _Readings) -> Iterator[PhaseRow]:
    """Yield the row of a state if it was read at all."""
    values = readings.value
    if len(values):
        yield PhaseRow(
            phase=phase,
            counter=readings.series.name,
            unit=readings.series.unit,
            per_call=None,
            least=float(values.min()),
            mean=float(values.mean()),
            most=float(values.max()),
            readings=len(values),
        )


def _spans_named(trace: Trace, run: int | None, level: str, name: str) -> Array:
    if name not in trace.strings:
        return np.zeros(0, "i8")
    spans = trace.spans
    named = spans.name == trace.strings.index(name)
    return np.flatnonzero(named & spans.at(level) & spans.in_run(run))


def _readings_of(trace: Trace, run: int | None) -> Iterator[_Readings]:
    """Yield the readings of each counter of a run.

    A probe reads its counters together; some of them may have been left out at times.
    """
    counters = trace.counters
    taken = []
    for index, series in enumerate(trace.series):
        if series.run == run:
            chosen = np.flatnonzero(counters.series == index)
            chosen = chosen[np.argsort(counters.time[chosen], kind="stable")]
            taken.append((series, counters.time[chosen], counters.value[chosen]))
    of_probes: list[Array] = []
    for _, time, _ in taken:
        alike = [moments for moments in of_probes if np.isin(time, moments).any()]
        apart = [moments for moments in of_probes if not np.isin(time, moments).any()]
        of_probes = [*apart, np.unique(np.concatenate([time, *alike]))]
    for series, time, value in taken:
        own = (moments for moments in of_probes if np.isin(time, moments).any())
        yield _Readings(series, time, value, next(own, time))


def _differences(trace: Trace, readings: _Readings, spans: Array) -> _Differences:
    """Return what was counted from the last reading before each span to the first after it.

    Spans without a reading on both sides are left out, and so are those at which the counter has
    none of its probe's.
    """
    start = trace.spans.start[spans]
    end = trace.spans.end[spans]
    before = np.searchsorted(readings.time, start, side="right") - 1
    after = np.searchsorted(readings.time, end, side="left")
    enclosed = (before >= 0) & (after < len(readings.time))
    before = before[enclosed]
    after = after[enclosed]
    moments = readings.moments
    first = moments[np.searchsorted(moments, start[enclosed], side="right") - 1]
    last = moments[np.searchsorted(moments[:-1], end[enclosed], side="left")]
    is_next = (readings.time[before] == first) & (readings.time[after] == last)
    counts = readings.value[after] - readings.value[before]
    return _Differences(counts[is_next], (after == before + 1)[is_next])
