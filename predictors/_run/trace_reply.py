"""The reply that carries a trace: spans as columns of whole numbers.

Texts, tracks and levels are columns of indices into the lists ``strings``, ``tracks`` and
``levels``.
"""

import os
from typing import Any, Dict, List

from .protocol import OutgoingReply
from .tracing import TracedCalls

COLUMNS = (
    "level",
    "name",
    "type",
    "shape",
    "start",
    "end",
    "track",
    "bytes",
    "correlation",
    "request",
    "external",
)
"""Columns of spans; each is an array of whole numbers with this name after ``span_``."""


def trace_reply(trace: TracedCalls) -> OutgoingReply:
    """Return a trace as the fields and arrays of a reply.

    The arrays are ``span_NAME`` for each column, ``plain`` (nanoseconds of the calls without
    probes), and ``time_N`` and ``value_N`` of the counter number N of ``series``.
    """
    import numpy

    indices = _Indices()
    rows = [indices.row_of(span) for span in trace.spans]
    table = numpy.array(rows, "i8").reshape(-1, len(COLUMNS))
    columns = numpy.ascontiguousarray(table.T)
    arrays = []
    for name, column in zip(COLUMNS, columns):
        arrays.append(("span_" + name, column))
    arrays.append(("plain", numpy.array(trace.plain, "i8")))
    for number, series in enumerate(trace.series):
        arrays.append(("time_%d" % number, numpy.array(series.times, "i8")))
        arrays.append(("value_%d" % number, numpy.array(series.values, "f8")))
    fields = {
        "strings": indices.strings.values,
        "tracks": indices.tracks.values,
        "levels": indices.levels.values,
        "series": [[series.name, series.unit, series.rising] for series in trace.series],
        "probes": [status.as_fields() for status in trace.probes],
        "process": os.getpid(),
    }
    return OutgoingReply(fields, arrays)


class _Indices:
    """The lists of a reply, filled while spans become rows."""

    def __init__(self):
        self.strings = _Index()
        self.tracks = _Index()
        self.levels = _Index()
        self.strings.of("")

    def row_of(self, span):
        """Return the columns of a span; a span never ends before it starts."""
        return (
            self.levels.of(span.level),
            self.strings.of(span.name),
            self.strings.of(span.type),
            self.strings.of(span.shape),
            span.start,
            max(span.start, span.end),
            self.tracks.of((span.thread, span.stream)),
            span.bytes,
            span.correlation,
            span.request,
            span.external,
        )


class _Index:
    """A list of distinct values, in which each has a number."""

    def __init__(self):
        self.values: List[Any] = []
        self._numbers: Dict[Any, int] = {}

    def of(self, value):
        if value not in self._numbers:
            self._numbers[value] = len(self.values)
            self.values.append(value)
        return self._numbers[value]
