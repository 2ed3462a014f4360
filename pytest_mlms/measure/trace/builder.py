"""Construction of a trace from parts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from pytest_mlms.measure.trace.metadata import TraceMetadata
from pytest_mlms.measure.trace.runs import TraceRun
from pytest_mlms.measure.trace.spans import Counters, CounterSeries, Spans, Trace, Track

Array = NDArray[Any]
Value = TypeVar("Value")


class TraceBuilder:
    """Collects spans, counters and runs; stores each string, track and series once.

    ``metadata`` and the elements of ``runs`` may be replaced until the trace is built.
    """

    def __init__(self, metadata: TraceMetadata | None = None) -> None:
        self.metadata = metadata or TraceMetadata()
        self.runs: list[TraceRun] = []
        self._strings: dict[str, int] = {"": 0}
        self._tracks: dict[Track, int] = {}
        self._series: dict[CounterSeries, int] = {}
        self._spans: list[Spans] = []
        self._counters: list[Counters] = []

    def add_run(self, run: TraceRun) -> int:
        """Add a run; return its index."""
        self.runs.append(run)
        return len(self.runs) - 1

    def text(self, text: str | None) -> int:
        """Return the index of a string."""
        return _number_of(text or "", self._strings)

    def texts(self, texts: Iterable[str | None]) -> Array:
        """Return the index of each string."""
        indices = map(self.text, texts)
        return np.fromiter(indices, "i4")

    def track(self, track: Track) -> int:
        """Return the index of a track."""
        return _number_of(track, self._tracks)

    def add(self, **columns: Any) -> None:
        """Add spans with the columns of ``Spans.of``."""
        spans = Spans.of(**columns)
        self._spans.append(spans)

    def count(self, series: CounterSeries, time: Array, value: Array) -> None:
        """Add readings of a counter: times in nanoseconds, and values in the unit of the series."""
        number = _number_of(series, self._series)
        column = np.full(len(time), number, "i4")
        readings = Counters(column, time, value)
        self._counters.append(readings)

    def build(self) -> Trace:
        """Return the trace of all that was added so far."""
        return Trace(
            spans=Spans.join(self._spans),
            counters=Counters.join(self._counters),
            strings=tuple(self._strings),
            tracks=tuple(self._tracks),
            series=tuple(self._series),
            runs=tuple(self.runs),
            metadata=self.metadata,
        )


def _number_of(value: Value, numbers: dict[Value, int]) -> int:
    """Return the number of a value; a new value gets the next one."""
    return numbers.setdefault(value, len(numbers))
