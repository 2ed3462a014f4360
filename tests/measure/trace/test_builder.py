"""Construction of traces."""

from __future__ import annotations

import numpy as np

from pytest_mlms.measure.trace.builder import TraceBuilder
from pytest_mlms.measure.trace.records import TraceMetadata, TraceRun
from pytest_mlms.measure.trace.spans import CounterSeries, Track


def test_a_string_is_stored_once_and_the_first_is_empty() -> None:
    builder = TraceBuilder()
    assert builder.text("conv") == builder.text("conv") == 1
    assert builder.texts(["relu", None, "conv"]).tolist() == [2, 0, 1]
    assert builder.build().strings == ("", "conv", "relu")


def test_a_track_is_stored_once() -> None:
    builder = TraceBuilder()
    track = Track(0, 10, 11, "main", "thread")
    assert builder.track(track) == builder.track(track) == 0
    assert builder.build().tracks == (track,)


def test_readings_of_one_series_are_one_series() -> None:
    builder = TraceBuilder()
    power = CounterSeries("power", "W", 0)
    builder.count(power, np.array([1]), np.array([5.0]))
    builder.count(power, np.array([2]), np.array([6.0]))
    trace = builder.build()
    assert trace.series == (power,)
    assert trace.counters.series.tolist() == [0, 0]
    assert trace.counters.value.tolist() == [5.0, 6.0]


def test_runs_have_the_order_in_which_they_were_added() -> None:
    builder = TraceBuilder(TraceMetadata("net"))
    assert builder.add_run(TraceRun("model")) == 0
    assert builder.add_run(TraceRun("layer")) == 1
    trace = builder.build()
    assert [run.level for run in trace.runs] == ["model", "layer"]
    assert trace.metadata.manifest == "net"


def test_a_built_trace_does_not_change_with_its_builder() -> None:
    builder = TraceBuilder()
    before = builder.build()
    builder.add_run(TraceRun("model"))
    assert before.runs == ()
