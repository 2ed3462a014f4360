"""Values that the analyses of a trace share."""

from __future__ import annotations

from dataclasses import replace

from pytest_mlms.measure.trace.context import TraceContext
from pytest_mlms.measure.trace.records import LayerWork, Peaks, TraceMetadata
from pytest_mlms.measure.trace.roofline import Work
from tests.support.traces import TraceWriter

METADATA = TraceMetadata(
    manifest="net",
    case="ort-cpu-b4",
    batch_size=4,
    framework="ort",
    device="cpu",
    static=(LayerWork("conv", "Conv", 1000, 100),),
    peaks=Peaks(flops=100e9, bytes=10e9),
)


def context(metadata: TraceMetadata = METADATA) -> TraceContext:
    writer = TraceWriter(metadata)
    writer.run("model").predict(0, 3000)
    run = writer.run("layer")
    run.predict(0, 4000)
    run.layer("conv", 0, 2000, type="Conv")
    return TraceContext(writer.build())


def test_rows_begin_with_model_and_case_and_series_leave_out_the_batch_size() -> None:
    assert context().name == ("net", "ort-cpu-b4")
    assert context().series == ("net", "ort-cpu", "ort", "cpu")
    for case in ("ort-b4-cpu-b4", "ort-b40-cpu-b4", "ort-cpu-b4-short"):
        named = context(replace(METADATA, case=case))
        assert named.series[1] == case.replace("cpu-b4", "cpu")


def test_tables_are_computed_once() -> None:
    shared = context()
    assert shared.layers is shared.layers
    assert shared.kernels == []


def test_the_latency_is_that_of_an_untraced_call() -> None:
    assert context().latency_us == 3


def test_works_are_those_of_the_measured_layers() -> None:
    assert context().works == [Work(1000, 100)]
    assert context().total_work == Work(1000, 100)


def test_a_roofline_point_needs_work_time_and_peaks() -> None:
    work = Work(1000, 100)
    point = context().roofline_point(work, 2.0)
    assert point is not None
    assert point.gflops_per_s == 0.5
    assert context().roofline_point(None, 2.0) is None
    assert context().roofline_point(work, None) is None
    without_peaks = context(replace(METADATA, peaks=None))
    assert without_peaks.roofline_point(work, 2.0) is None
