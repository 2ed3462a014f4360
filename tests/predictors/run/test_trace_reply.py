"""A trace as the columns of a reply."""

from __future__ import annotations

import os

import pytest
from mlms_predictors._run.probe import CounterReadings, ProbeStatus, Span
from mlms_predictors._run.protocol import OutgoingReply
from mlms_predictors._run.trace_reply import trace_reply
from mlms_predictors._run.tracing import TracedCalls

CALL = Span("model", "predict", "", "", 10, 90, thread=5, request=0)
LAYER = Span("layer", "conv", "Conv", "1 x 8", 20, 40, thread=5, bytes=64, request=0, external=3)
# A kernel that ends before it starts, as clocks with a coarse grain make it.
KERNEL = Span("kernel", "conv", "kernel", "", 50, 45, 0, "cuda:0 stream 7", correlation=9)


@pytest.fixture
def reply() -> OutgoingReply:
    return trace_reply(TracedCalls([], [CALL, LAYER, KERNEL], [], []))


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("start", [10, 20, 50]),
        ("end", [90, 40, 50]),
        ("bytes", [-1, 64, -1]),
        ("correlation", [0, 0, 9]),
        ("request", [0, 0, -1]),
        ("external", [0, 3, 0]),
    ],
)
def test_numbers_of_spans_are_columns(reply: OutgoingReply, column: str, values: list[int]) -> None:
    columns = dict(reply.arrays)
    assert columns[f"span_{column}"].tolist() == values


@pytest.mark.parametrize(
    ("column", "table", "values"),
    [
        ("level", "levels", ["model", "layer", "kernel"]),
        ("name", "strings", ["predict", "conv", "conv"]),
        ("type", "strings", ["", "Conv", "kernel"]),
        ("shape", "strings", ["", "1 x 8", ""]),
        ("track", "tracks", [(5, None), (5, None), (0, "cuda:0 stream 7")]),
    ],
)
def test_texts_and_tracks_are_indices_into_tables(
    reply: OutgoingReply, column: str, table: str, values: list[object]
) -> None:
    columns = dict(reply.arrays)
    entries = reply.fields[table]
    assert [entries[index] for index in columns[f"span_{column}"]] == values
    assert len(entries) == len(set(entries))


def test_the_first_text_is_empty(reply: OutgoingReply) -> None:
    assert reply.fields["strings"][0] == ""


def test_a_reply_names_the_process_and_the_status_of_each_probe() -> None:
    status = ProbeStatus("perf", True)
    fields, _ = trace_reply(TracedCalls([], [], [], [status]))
    assert fields["process"] == os.getpid()
    assert fields["probes"] == [status.as_fields()]


def test_counters_and_calls_without_probes_are_arrays() -> None:
    cycles = CounterReadings("cycles", "count", True, [1, 2], [10.0, 20.0])
    heat = CounterReadings("temp1", "degC", False, [3], [61.5])
    fields, arrays = trace_reply(TracedCalls([7, 8], [], [cycles, heat], []))
    columns = dict(arrays)
    assert fields["series"] == [["cycles", "count", True], ["temp1", "degC", False]]
    assert columns["plain"].tolist() == [7, 8]
    assert columns["time_0"].tolist() == [1, 2]
    assert columns["value_0"].tolist() == [10.0, 20.0]
    assert columns["value_1"].tolist() == [61.5]


def test_a_trace_without_spans_has_empty_columns() -> None:
    _, arrays = trace_reply(TracedCalls([], [], [], []))
    assert {array.size for _, array in arrays} == {0}
