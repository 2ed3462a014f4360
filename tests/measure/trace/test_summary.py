"""Latencies, the time of a GPU, and the summary of a trace."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_mlms.core.serialization import from_plain, to_plain
from pytest_mlms.measure.structure.onnx_structure import describe_onnx
from pytest_mlms.measure.trace.correlate import parents_of
from pytest_mlms.measure.trace.records import (
    CostSummary,
    DeviceTime,
    LayerWork,
    Peaks,
    ProbeStatus,
    TraceMetadata,
)
from pytest_mlms.measure.trace.roofline import Work
from pytest_mlms.measure.trace.runner import assign_requests
from pytest_mlms.measure.trace.spans import Trace
from pytest_mlms.measure.trace.summary import (
    TraceContext,
    device_time,
    layer_time,
    model_latency,
    summarize,
    summarize_cost,
)
from pytest_mlms.measure.trace.tables import layer_rows
from tests.support.project import DIGITS
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


KINDS = ["kernel", "graph kernel", "memcpy HtoD", "Memcpy DtoH (Device -> Pageable)", "memset"]


def test_a_call_has_the_time_of_kernels_and_of_copies_apart_and_together() -> None:
    writer = TraceWriter()
    run = writer.run("kernel")
    for request in range(2):
        run.request = request
        begin = request * 100_000
        run.predict(begin, begin + 90_000)
        run.kernel("memcpy HtoD", begin + 1_000, begin + 11_000, type="memcpy")
        run.kernel("conv", begin + 10_000, begin + 30_000)
        run.kernel("relu", begin + 20_000, begin + 26_000, type="graph kernel")
        run.kernel("Memcpy DtoH (x)", begin + 40_000, begin + 45_000, type="memcpy")
    assert device_time(writer.build()) == DeviceTime(
        busy_us=34.0, kernels_us=20.0, to_device_us=10.0, to_host_us=5.0, launches=4.0
    )


def test_a_trace_without_a_kernel_in_a_call_has_no_time() -> None:
    writer = TraceWriter()
    assert device_time(writer.build()) is None
    run = writer.run("kernel")
    run.predict(0, 10)
    run.kernel("warm-up", 20, 30, request=-1)
    assert device_time(writer.build()) is None


SPANS = st.lists(
    st.tuples(st.integers(0, 90), st.integers(0, 30), st.sampled_from(KINDS)), min_size=1
)


@given(SPANS)
def test_the_busy_time_is_the_union_of_all_spans(spans: list[tuple[int, int, str]]) -> None:
    writer = TraceWriter()
    run = writer.run("kernel")
    run.predict(0, 200_000)
    busy = set()
    for start, length, kind in spans:
        run.kernel(kind, start * 1000, (start + length) * 1000, type=kind.split(" HtoD")[0])
        busy |= set(range(start, start + length))
    found = device_time(writer.build())
    assert found is not None
    assert found.busy_us == pytest.approx(len(busy))


def test_kernels_that_another_thread_launches_during_a_call_are_the_calls() -> None:
    writer = TraceWriter()
    run = writer.run("kernel")
    run.predict(0, 100_000)
    run.request = -1
    run.launch(10_000, 11_000, 7, track=run.thread(2))
    run.kernel("conv", 20_000, 50_000, correlation=7)
    run.launch(110_000, 111_000, 8, track=run.thread(2))
    run.kernel("conv", 120_000, 150_000, correlation=8)
    found = device_time(assign_requests(writer.build()))
    assert found is not None
    assert (found.busy_us, found.launches) == (30.0, 1.0), "the other one is after the call"


def traced(*levels: str) -> TraceWriter:
    return TraceWriter(TraceMetadata(levels=levels))


def test_the_slowest_layers_come_first_and_there_are_five_of_them_at_most() -> None:
    writer = traced("layer")
    run = writer.run("layer")
    run.predict(0, 21_000)
    start = 0
    for number in range(1, 7):
        end = start + number * 1000
        run.layer(f"layer {number}", start, end)
        start = end
    summary = summarize(writer.build())
    assert summary.layers == 6
    assert summary.coverage == pytest.approx(1)
    assert summary.layers_us == pytest.approx(21)
    assert summary.call_us == pytest.approx(21)
    assert [layer.us for layer in summary.slowest] == [6, 5, 4, 3, 2]
    assert summary.slowest[0].name == "layer 6"
    assert summary.slowest[0].share == pytest.approx(6 / 21)


def test_a_level_with_spans_is_seen() -> None:
    writer = traced("model", "application", "layer")
    writer.run("layer").layer("conv", 0, 5)
    summary = summarize(writer.build())
    assert summary.unseen == {}
    assert summary.levels == ("model", "application", "layer")


def test_a_level_with_counters_is_seen() -> None:
    writer = traced("hardware")
    writer.run("hardware").count("power", "W", [(1, 5.0)])
    assert summarize(writer.build()).unseen == {}


def test_probes_with_the_same_reason_are_named_together() -> None:
    writer = traced("kernel")
    probes = (
        ProbeStatus("cupti", False, "the device is cpu"),
        ProbeStatus("kineto", False, "the device is cpu"),
    )
    writer.run("kernel", probes=probes, void="no probe was available")
    summary = summarize(writer.build())
    assert summary.unseen == {"kernel": "cupti, kineto: the device is cpu"}


def test_a_level_without_any_reason_says_so() -> None:
    assert summarize(traced("kernel").build()).unseen == {"kernel": "nothing was recorded"}


def test_a_fault_is_the_reason_of_an_unseen_level_and_else_cut_it_short() -> None:
    writer = traced("layer", "kernel")
    writer.run("layer", fault="killed by SIGKILL").layer("conv", 0, 5)
    writer.run("kernel", fault="killed by SIGSEGV")
    summary = summarize(writer.build())
    assert summary.unseen == {"kernel": "killed by SIGSEGV"}
    assert summary.faults == {"layer": "killed by SIGKILL"}


def test_faults_of_probes_count_and_those_of_void_runs_do_not() -> None:
    writer = traced("hardware")
    faulty = (ProbeStatus("nvml", True, fault="lost the GPU"),)
    writer.run("hardware", probes=faulty).count("power", "W", [(1, 5.0)])
    writer.run("layer", fault="killed", void="the run failed")
    assert summarize(writer.build()).faults == {"hardware": "lost the GPU"}


def test_a_level_where_a_probe_saw_nothing_has_the_fault_as_the_reason() -> None:
    writer = traced("kernel")
    writer.run("kernel", probes=(ProbeStatus("cupti", True, fault="not one kernel was seen"),))
    assert summarize(writer.build()).unseen == {"kernel": "cupti: not one kernel was seen"}


def test_ambiguous_parents_are_counted() -> None:
    writer = traced("kernel")
    run = writer.run("kernel")
    run.layer("one", 0, 10)
    run.layer("two", 5, 15)
    run.launch(6, 8, 0)
    assert summarize(writer.build()).ambiguous == 1


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


def test_the_sums_of_types_are_those_of_the_model() -> None:
    cost = describe_onnx(DIGITS / "digits_cnn.onnx", 4)
    summary = summarize_cost(cost)
    assert summary.layers == len(cost.layers) == sum(each.layers for each in summary.types)
    assert summary.parameters == cost.parameters == sum(each.parameters for each in summary.types)
    assert summary.flops == cost.flops == sum(each.flops for each in summary.types) > 0
    assert summary.weight_bytes == sum(each.weight_bytes for each in summary.types)
    assert summary.activation_bytes == sum(each.output_bytes for each in summary.types)
    assert summary.peak_bytes == cost.peak_bytes


def test_the_costliest_type_comes_first() -> None:
    types = summarize_cost(describe_onnx(DIGITS / "digits_cnn.onnx", 1)).types
    assert types[0].type == "Conv"
    assert [each.flops for each in types] == sorted((each.flops for each in types), reverse=True)


def test_a_summary_is_read_back_from_json() -> None:
    summary = summarize_cost(describe_onnx(DIGITS / "digits_cnn.onnx", 1))
    assert from_plain(CostSummary, to_plain(summary)) == summary
