"""The data model of a trace: spans, counters, tracks, runs and metadata.

Spans and counter readings are columns of numpy arrays, so that a million of them stay cheap. Times
are whole nanoseconds of the host's monotonic clock, which all processes of a host share. Names,
types and shapes are indices into ``Trace.strings``; index 0 is the empty string.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from pytest_mlms.core.arrays import Array
from pytest_mlms.measure.trace import LEVELS
from pytest_mlms.measure.trace.records import TraceMetadata, TraceRun

SPAN_COLUMNS = {
    "level": "u1",
    "name": "i4",
    "type": "i4",
    "shape": "i4",
    "start": "i8",
    "end": "i8",
    "track": "i4",
    "bytes": "i8",
    "correlation": "i8",
    "request": "i4",
    "run": "i4",
    "external": "i8",
}
"""Columns of ``Spans`` with the numpy type of each."""

SPAN_DEFAULTS = {
    "type": 0,
    "shape": 0,
    "bytes": -1,
    "correlation": 0,
    "request": -1,
    "external": 0,
}
"""Values of the columns that may be left out."""

COUNTER_COLUMNS = {"series": "i4", "time": "i8", "value": "f8"}
"""Columns of ``Counters`` with the numpy type of each."""


class Track(NamedTuple):
    """A thread of a process, or a stream of a device, on which spans lie.

    ``kind`` is ``thread`` or ``stream``.
    """

    run: int
    process: int
    thread: int
    name: str
    kind: str


class CounterSeries(NamedTuple):
    """A counter of one run: its name and unit.

    ``rising`` counters only ever increase, such as page faults. The others are states, such as a
    temperature.
    """

    name: str
    unit: str
    run: int
    rising: bool = False


@dataclass(frozen=True, eq=False)
class Spans:
    """Spans as columns with one element per span.

    ``level`` is an index into ``LEVELS``, ``run`` into ``Trace.runs``, and ``track`` into
    ``Trace.tracks``. ``bytes`` is -1 where unknown. ``correlation`` links a kernel launch to its
    kernel (0: none). ``request`` is the number of the traced call within the run (-1: outside of
    any). ``external`` links a layer to the library calls inside of it, by CUPTI (0: none).
    """

    level: Array
    name: Array
    type: Array
    shape: Array
    start: Array
    end: Array
    track: Array
    bytes: Array
    correlation: Array
    request: Array
    run: Array
    external: Array

    @classmethod
    def of(cls, **columns: Any) -> Spans:
        """Return spans with these columns; a scalar is the value of all spans.

        Columns of ``SPAN_DEFAULTS`` may be left out. Raises TypeError for an unknown column.
        """
        unknown = sorted(set(columns) - set(SPAN_COLUMNS))
        if unknown:
            raise TypeError(f"spans have no column {unknown}")
        count = len(columns["start"])
        complete = {**SPAN_DEFAULTS, **columns}
        arrays = {}
        for name, kind in SPAN_COLUMNS.items():
            values = np.asarray(complete[name], dtype=kind)
            arrays[name] = np.broadcast_to(values, (count,)).copy()
        return cls(**arrays)

    @classmethod
    def join(cls, parts: Sequence[Spans]) -> Spans:
        """Return the spans of all parts, in their order."""
        if not parts:
            return cls.of(**{name: [] for name in SPAN_COLUMNS})
        return cls(**{name: _joined(name, parts) for name in SPAN_COLUMNS})

    def __len__(self) -> int:
        return len(self.start)

    def take(self, chosen: Array) -> Spans:
        """Return the spans at these indices, or where this mask is true."""
        return Spans(**{name: self.column(name)[chosen] for name in SPAN_COLUMNS})

    def column(self, name: str) -> Array:
        """Return a column by its name."""
        values: Array = getattr(self, name)
        return values

    def at(self, level: str) -> Array:
        """Return a mask of the spans of a level."""
        return np.asarray(self.level == LEVELS.index(level))

    def in_run(self, run: int | None) -> Array:
        """Return a mask of the spans of a run; of none without a run."""
        number = -1 if run is None else run
        return np.asarray(self.run == number)

    def find(self, level: str, run: int | None) -> Array:
        """Return the indices of the spans of a level in a run; none without a run."""
        chosen = self.at(level) & self.in_run(run)
        return np.flatnonzero(chosen)

    @property
    def duration(self) -> Array:
        """Nanoseconds from start to end."""
        return np.asarray(self.end - self.start)


@dataclass(frozen=True, eq=False)
class Counters:
    """Counter readings as columns.

    ``series`` is an index into ``Trace.series``, ``time`` is in nanoseconds, and ``value`` is in
    the unit of the series.
    """

    series: Array
    time: Array
    value: Array

    @classmethod
    def join(cls, parts: Sequence[Counters]) -> Counters:
        """Return the readings of all parts."""
        columns = {}
        for name, kind in COUNTER_COLUMNS.items():
            empty = np.zeros(0, kind)
            values = [getattr(part, name) for part in parts]
            columns[name] = np.concatenate([empty, *values]).astype(kind)
        return cls(**columns)

    def __len__(self) -> int:
        return len(self.time)


@dataclass(frozen=True, eq=False)
class Trace:
    """All spans and counters of a traced case, with what their indices stand for."""

    spans: Spans
    counters: Counters
    strings: tuple[str, ...]
    tracks: tuple[Track, ...]
    series: tuple[CounterSeries, ...]
    runs: tuple[TraceRun, ...]
    metadata: TraceMetadata

    def with_spans(self, spans: Spans) -> Trace:
        """Return the same trace with other spans."""
        return replace(self, spans=spans)

    @property
    def devices(self) -> Array:
        """A mask over tracks: those that are a device's streams."""
        return np.array([track.kind == "stream" for track in self.tracks], bool)

    def texts(self, column: Array) -> list[str]:
        """Return the strings that a column of indices stands for."""
        return [self.strings[index] for index in column.tolist()]

    def runs_at(self, level: str) -> list[TraceRun]:
        """Return all runs of a level, void ones too."""
        return [run for run in self.runs if run.level == level]

    def run_at(self, level: str) -> int | None:
        """Return the index of the last run of a level that counts, or None."""
        found = None
        for index, run in enumerate(self.runs):
            if run.level == level and not run.void:
                found = index
        return found


def _joined(name: str, parts: Iterable[Spans]) -> Array:
    return np.concatenate([part.column(name) for part in parts])
