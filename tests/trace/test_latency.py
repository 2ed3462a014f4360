"""Latencies of the model and of its layers."""

from __future__ import annotations

import pytest

from pytest_mlms.trace.latency import layer_coverage, model_latency
from pytest_mlms.trace.spans import Trace
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


def test_the_coverage_of_the_layers_is_that_of_their_own_run() -> None:
    assert layer_coverage(example()) == pytest.approx(0.9)


def test_there_is_no_coverage_without_layers() -> None:
    assert layer_coverage(TraceWriter().build()) is None
