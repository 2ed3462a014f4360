"""Analyses of steps and counters."""

from __future__ import annotations

from pytest_mlms.measure.trace.records import TraceMetadata
from tests.support.analysis_rows import rows_of
from tests.support.traced_models import counted_model
from tests.support.traces import TraceWriter


def test_counters_by_layer_have_shares_of_all_layers() -> None:
    conv, relu = rows_of("counters-by-layer", counted_model("layer+hardware"))
    assert conv["layer"] == "conv1"
    assert conv["per_call"] == 6
    assert conv["share"] == 0.75
    assert relu["layer"] == "relu"
    assert relu["per_call"] == 2
    assert relu["share"] == 0.25


def test_a_counter_that_counted_nothing_has_no_shares() -> None:
    writer = TraceWriter(TraceMetadata("net", "case"))
    run = writer.run("layer+hardware")
    run.layer("conv1", 10, 19)
    run.count("page-faults", "count", [(5, 1.0), (25, 1.0)], rising=True)
    (row,) = rows_of("counters-by-layer", writer.build())
    assert row["per_call"] == 0
    assert row["share"] is None


def test_counters_by_phase_have_what_a_call_adds() -> None:
    (row,) = rows_of("counters", counted_model("hardware"))
    assert row["phase"] == "predict"
    assert row["counter"] == "page-faults"
    assert row["per_call"] == 8
    assert row["most"] is None


def test_steps_have_their_shares_of_the_request() -> None:
    writer = TraceWriter(TraceMetadata("net", "case"))
    run = writer.run("application")
    run.span("application", "request", 0, 10_000)
    run.span("application", "pre-process", 0, 4_000)
    request, phase = rows_of("steps", writer.build())
    assert request["step"] == "request"
    assert request["share"] == 1
    assert phase["step"] == "pre-process"
    assert phase["share"] == 0.4


def test_a_gpu_has_its_time_beside_a_call_without_tracing() -> None:
    writer = TraceWriter(TraceMetadata("net", "case"))
    writer.run("model").predict(0, 40_000)
    run = writer.run("kernel")
    run.predict(0, 60_000)
    run.kernel("conv", 10_000, 20_000)
    run.kernel("memcpy HtoD", 5_000, 15_000, type="memcpy")
    (row,) = rows_of("gpu", writer.build())
    assert (row["latency_us"], row["busy_us"], row["share"]) == (40, 15, 0.375)
    assert (row["kernels_us"], row["to_device_us"], row["to_host_us"]) == (10, 10, 0)
