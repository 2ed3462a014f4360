"""Traces for tests, written span by span."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pytest_mlms.measure.trace import LEVELS
from pytest_mlms.measure.trace.builder import TraceBuilder
from pytest_mlms.measure.trace.records import TraceMetadata, TraceRun
from pytest_mlms.measure.trace.spans import CounterSeries, Spans, Trace, Track

__all__ = ["RunWriter", "TraceWriter", "spans_of", "with_run"]


class TraceWriter:
    """Writes a trace run by run."""

    def __init__(self, metadata: TraceMetadata | None = None) -> None:
        self.builder = TraceBuilder(metadata)

    def run(self, level: str, **facts: Any) -> RunWriter:
        """Begin a run, with facts of ``TraceRun``."""
        return RunWriter(self.builder, TraceRun(level, **facts))

    def build(self) -> Trace:
        return self.builder.build()


class RunWriter:
    """Writes the spans and counters of one run, in a process of its own.

    ``request`` is the request of the spans that follow.
    """

    def __init__(self, builder: TraceBuilder, run: TraceRun) -> None:
        self.number = builder.add_run(run)
        self.request = 0
        self._builder = builder
        self._process = 100 + self.number
        thread = Track(self.number, self._process, 1, "main", "thread")
        self._thread = builder.track(thread)

    def span(self, level: str, name: str, start: int, end: int, **columns: Any) -> None:
        """Add a span in nanoseconds; ``type`` is a text, the other columns are numbers."""
        columns.setdefault("track", self._thread)
        columns.setdefault("request", self.request)
        columns["type"] = self._builder.text(columns.get("type"))
        columns["level"] = LEVELS.index(level)
        columns["name"] = self._builder.text(name)
        self._builder.add(start=[start], end=[end], run=self.number, **columns)

    def predict(self, start: int, end: int) -> None:
        """Add a call of the model."""
        self.span("model", "predict", start, end)

    def layer(self, name: str, start: int, end: int, **columns: Any) -> None:
        """Add a layer, by default of the type ``T``."""
        columns.setdefault("type", "T")
        self.span("layer", name, start, end, **columns)

    def launch(self, start: int, end: int, correlation: int, **columns: Any) -> None:
        """Add a kernel launch on the thread."""
        self.span("library", "launch", start, end, correlation=correlation, **columns)

    def thread(self, number: int) -> int:
        """Return the track of another thread."""
        name = f"thread {number}"
        return self._builder.track(Track(self.number, self._process, number, name, "thread"))

    def kernel(self, name: str, start: int, end: int, **columns: Any) -> None:
        """Add a kernel on the device's stream, by default of the type ``kernel``."""
        columns.setdefault("type", "kernel")
        stream = Track(self.number, self._process, 7, "stream 7", "stream")
        self.span("kernel", name, start, end, track=self._builder.track(stream), **columns)

    def count(
        self, name: str, unit: str, readings: Sequence[tuple[int, float]], rising: bool = False
    ) -> None:
        """Add the readings of a counter: pairs of nanoseconds and value."""
        series = CounterSeries(name, unit, self.number, rising)
        times = np.array([time for time, _ in readings], "i8")
        values = np.array([value for _, value in readings], "f8")
        self._builder.count(series, times, values)


def spans_of(*rows: tuple[str, int, int, int, int]) -> Spans:
    """Return spans of one run: tuples of level, start, end, track and correlation ID."""
    level, start, end, track, correlation = zip(*rows, strict=True)
    return Spans.of(
        level=[LEVELS.index(name) for name in level],
        name=0,
        start=start,
        end=end,
        track=track,
        run=0,
        correlation=correlation,
    )


def with_run(trace: Trace, index: int, **facts: Any) -> Trace:
    """Return the trace with other facts of one run."""
    runs = list(trace.runs)
    runs[index] = replace(runs[index], **facts)
    return replace(trace, runs=tuple(runs))
