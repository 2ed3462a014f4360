"""Analyses of requests, and the table of their steps."""

from __future__ import annotations

from pytest_mlms.measure.trace.analyses.requests import StepRow, step_rows
from pytest_mlms.measure.trace.records import TraceMetadata
from pytest_mlms.measure.trace.spans import Trace
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


US = 1000
STEPS = (
    ("decode", 1, 3),
    ("decode", 4, 6),
    ("pre-process", 0, 6),
    ("predict", 6, 10),
    ("request", 0, 10),
)


def requests(level: str, *scales: int) -> Trace:
    """Requests of 10 µs times a scale: 6 of pre-process with two steps of 2, and 4 of predict."""
    writer = TraceWriter()
    run = writer.run(level)
    at = 0
    for number, scale in enumerate(scales):
        run.request = number
        for name, start, end in STEPS:
            run.span("application", name, at + start * scale * US, at + end * scale * US)
        at += 20 * scale * US
    return writer.build()


def test_each_step_has_its_phase_and_its_share_of_the_request() -> None:
    assert step_rows(requests("application", 1, 1, 1, 1, 50)) == [
        StepRow("request", "", 1.0, 10.0, 1.0),
        StepRow("pre-process", "request", 1.0, 6.0, 0.6),
        StepRow("decode", "pre-process", 2.0, 4.0, 0.4),
        StepRow("predict", "request", 1.0, 4.0, 0.4),
    ]


def test_requests_with_counters_have_no_latencies() -> None:
    assert step_rows(requests("application+hardware", 1)) == []


def test_a_run_without_spans_has_no_rows() -> None:
    assert step_rows(requests("application")) == []
