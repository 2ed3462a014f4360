"""Latencies of the model and of its layers."""

from __future__ import annotations

import pytest

from pytest_mlms.measure.trace.correlate import parents_of
from pytest_mlms.measure.trace.spans import Trace
from pytest_mlms.measure.trace.summary import layer_time, model_latency
from pytest_mlms.measure.trace.tables import layer_rows
from tests.support.traces import TraceWriter

US = 1000


def example() -> Trace:
    """A model of 100 µs, or 200 µs where layers are traced: two of 90 µs."""
    writer = TraceWriter()
    writer.run("model").predict(0, 100 * US)
    run = writer.run("layer")
    run.predict(0, 200 * US)
    run.layer("conv", 0, 90 * US)
    run.layer("relu", 90 * US, 180 * US)
    return writer.build()


def test_the_latency_of_the_model_is_that_of_the_run_without_probes() -> None:
    assert model_latency(example()) == 100
    assert model_latency(example(), "layer") == 200


def test_there_is_no_latency_of_a_level_without_a_run_or_without_a_call() -> None:
    assert model_latency(example(), "hardware") is None
    writer = TraceWriter()
    writer.run("model").span("model", "load", 0, 5, request=-1)
    assert model_latency(writer.build()) is None


def test_the_time_of_layers_is_that_of_their_own_run() -> None:
    time = layer_time(example())
    assert time is not None
    assert time.layers_us == 180
    assert time.call_us == 200
    assert time.share == pytest.approx(0.9)


def disturbed() -> Trace:
    """Twenty calls of four layers of 20 µs and 20 µs outside of them.

    Each layer is delayed by 500 µs in a fifth of the calls, in other calls than the other layers.
    """
    writer = TraceWriter()
    run = writer.run("layer")
    start = 0
    for request in range(20):
        run.request = request
        begin = start
        for layer in range(4):
            delay = 500 if request % 5 == layer else 0
            end = start + (20 + delay) * US
            run.layer(f"layer {layer}", start, end)
            start = end
        start += 20 * US
        run.predict(begin, start)
    return writer.build()


def test_layers_and_the_time_outside_add_up_to_the_call_on_a_busy_machine() -> None:
    trace = disturbed()
    time = layer_time(trace)
    assert time is not None
    rows = layer_rows(trace, parents_of(trace))
    assert time.layers_us == pytest.approx(sum(row.latency_us for row in rows))
    assert time.layers_us == pytest.approx(580)
    assert time.call_us == pytest.approx(600)


def test_time_outside_of_layers_is_not_lost_where_it_varies() -> None:
    writer = TraceWriter()
    run = writer.run("layer")
    for request in range(10):
        run.request = request
        begin = request * 1000 * US
        run.layer("conv", begin, begin + 50 * US)
        run.predict(begin, begin + (60 + 10 * request) * US)
    time = layer_time(writer.build())
    assert time is not None
    assert time.layers_us == pytest.approx(50)
    assert time.call_us == pytest.approx(105)  # the mean of 80, 90, ... 130


def test_the_layers_of_a_call_that_was_cut_short_have_no_share() -> None:
    writer = TraceWriter()
    run = writer.run("layer")
    run.layer("conv", 0, 5)
    assert layer_time(writer.build()) is None
    run.predict(0, 10)
    run.request = 1
    run.layer("conv", 20, 25)
    time = layer_time(writer.build())
    assert time is not None
    assert time.share == pytest.approx(0.5)


def test_there_is_no_time_of_layers_without_layers() -> None:
    assert layer_time(TraceWriter().build()) is None
