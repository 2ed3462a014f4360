"""A trace as the columns of a reply."""

from __future__ import annotations

import os

import numpy as np
from mlms_predictors._run.probe_status import ProbeStatus
from mlms_predictors._run.readings import CounterReadings
from mlms_predictors._run.span import Span
from mlms_predictors._run.trace_reply import trace_reply
from mlms_predictors._run.tracing import Trace

SPANS = [
    Span("model", "predict", "", "", 10, 90, thread=5, request=0),
    Span("layer", "conv", "Conv", "1 x 8", 20, 40, thread=5, bytes=64, request=0, external=3),
    Span("kernel", "conv", "kernel", "", 50, 45, 0, "cuda:0 stream 7", correlation=9),
]


def test_spans_are_columns_and_texts_are_numbers() -> None:
    fields, arrays = trace_reply(Trace([], SPANS, [], []))
    columns = dict(arrays)

    def texts(column: str, table: str) -> list[object]:
        return [fields[table][number] for number in columns[column]]

    assert texts("span_level", "levels") == ["model", "layer", "kernel"]
    assert texts("span_name", "strings") == ["predict", "conv", "conv"]
    assert texts("span_type", "strings") == ["", "Conv", "kernel"]
    assert texts("span_shape", "strings") == ["", "1 x 8", ""]
    assert texts("span_track", "tracks") == [(5, None), (5, None), (0, "cuda:0 stream 7")]
    assert columns["span_start"].tolist() == [10, 20, 50]
    assert columns["span_end"].tolist() == [90, 40, 50], "no span ends before it starts"
    assert columns["span_bytes"].tolist() == [-1, 64, -1]
    assert columns["span_correlation"].tolist() == [0, 0, 9]
    assert columns["span_request"].tolist() == [0, 0, -1]
    assert columns["span_external"].tolist() == [0, 3, 0]
    assert fields["strings"][0] == ""
    assert fields["process"] == os.getpid()


def test_counters_and_calls_without_probes_are_arrays() -> None:
    series = [
        CounterReadings("cycles", "count", True, [1, 2], [10.0, 20.0]),
        CounterReadings("board temp1_input", "degC", False, [3], [61.5]),
    ]
    fields, arrays = trace_reply(Trace([7, 8], [], series, [ProbeStatus("perf", True)]))
    columns = dict(arrays)
    assert fields["series"] == [["cycles", "count", True], ["board temp1_input", "degC", False]]
    assert fields["probes"] == [ProbeStatus("perf", True).as_fields()]
    assert columns["plain"].tolist() == [7, 8]
    assert columns["time_0"].tolist() == [1, 2]
    assert columns["value_1"].tolist() == [61.5]
    assert columns["time_0"].dtype == np.int64
    assert columns["span_start"].size == 0
