"""Spans and counters as columns."""

from __future__ import annotations

import numpy as np
import pytest

from pytest_mlms.measure.trace.spans import Counters, Spans, Trace
from tests.support.traces import TraceWriter


def three_spans() -> Spans:
    start = np.array([10, 20, 30])
    return Spans.of(level=2, name=1, start=start, end=start + 5, track=0, run=0, bytes=128)


def trace_with_runs() -> Trace:
    writer = TraceWriter()
    writer.run("layer").layer("conv", 0, 5)
    writer.run("kernel").kernel("gemm", 0, 5)
    writer.run("kernel", void="the run before counts")
    return writer.build()


def test_a_scalar_is_the_value_of_all_spans() -> None:
    spans = three_spans()
    assert spans.bytes.tolist() == [128, 128, 128]
    assert spans.level.tolist() == [2, 2, 2]


def test_columns_that_are_left_out_have_defaults() -> None:
    spans = three_spans()
    assert spans.correlation.tolist() == [0, 0, 0]
    assert spans.request.tolist() == [-1, -1, -1]


def test_an_unknown_column_is_an_error() -> None:
    with pytest.raises(TypeError, match="colour"):
        Spans.of(level=1, name=0, start=[1], end=[2], track=0, run=0, colour=3)


def test_a_missing_column_without_a_default_is_an_error() -> None:
    with pytest.raises(KeyError, match="track"):
        Spans.of(level=1, name=0, start=[1], end=[2], run=0)


def test_spans_are_joined_in_the_order_of_the_parts() -> None:
    spans = three_spans()
    twice = Spans.join([spans, spans])
    assert twice.start.tolist() == [10, 20, 30, 10, 20, 30]
    assert len(Spans.join([])) == 0


def test_spans_are_taken_by_index_or_by_mask() -> None:
    spans = three_spans()
    assert spans.take(np.array([2])).start.tolist() == [30]
    assert spans.take(spans.start < 25).start.tolist() == [10, 20]


def test_masks_choose_the_spans_of_a_level_and_of_a_run() -> None:
    spans = three_spans()
    assert spans.at("layer").all()
    assert not spans.at("kernel").any()
    assert spans.in_run(0).all()
    assert not spans.in_run(1).any()
    assert not spans.in_run(None).any()


def test_counters_are_joined_also_of_no_parts() -> None:
    one = Counters(np.array([0]), np.array([5]), np.array([1.5]))
    joined = Counters.join([one, one])
    assert joined.value.tolist() == [1.5, 1.5]
    assert len(joined) == 2
    assert len(Counters.join([])) == 0


def test_the_run_of_a_level_is_the_last_that_is_not_void() -> None:
    trace = trace_with_runs()
    assert trace.run_at("kernel") == 1
    assert trace.run_at("hardware") is None
    assert len(trace.runs_at("kernel")) == 2


def test_streams_are_device_tracks_and_threads_are_not() -> None:
    trace = trace_with_runs()
    kinds = dict(zip(trace.tracks, trace.devices.tolist(), strict=True))
    assert {track.name: device for track, device in kinds.items()} == {
        "main": False,
        "stream 7": True,
    }


def test_texts_are_the_strings_of_a_column() -> None:
    trace = trace_with_runs()
    assert trace.texts(trace.spans.name) == ["conv", "gemm"]
