"""The analyses of XSP over traces, and what the command makes of them."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_mlms.cli.main import main
from pytest_mlms.errors import MlmsError
from pytest_mlms.report.trace_query import contexts_of, find_analysis, render
from pytest_mlms.trace.analyses import ANALYSES as KINDS
from pytest_mlms.trace.analyses.analysis import AnalysisTable as Table
from pytest_mlms.trace.analyses.models import optimal_batch_size
from pytest_mlms.trace.builder import TraceBuilder
from pytest_mlms.trace.context import TraceContext
from pytest_mlms.trace.layer_work import match_work as match
from pytest_mlms.trace.metadata import LayerWork, Peaks, TraceMetadata
from pytest_mlms.trace.roofline import Work
from pytest_mlms.trace.roofline import roofline_point as point
from pytest_mlms.trace.runs import ProbeStatus, TraceRun
from pytest_mlms.trace.spans import CounterSeries, Trace, Track
from pytest_mlms.trace.storage import save_trace
from pytest_mlms.trace.tables import LayerRow

US = 1000
PEAKS = Peaks(100e9, 10e9, "by hand")
STATIC = (
    LayerWork("conv1", "Conv", 6_000_000, 60_000),
    LayerWork("relu", "Relu", 1000, 100_000),
)


def traced(size: int, us: int, **about: Any) -> Trace:
    """A model of a convolution (60 % of the time) with one kernel and a copy, and a relu with a
    kernel.
    """
    metadata = TraceMetadata(
        "net", f"ort-cpu-b{size}", size, "ort", "cpu", "trace", STATIC, peaks=PEAKS
    )
    builder = TraceBuilder(replace(metadata, **about))
    for run, level in enumerate(("model", "layer", "kernel")):
        builder.add_run(TraceRun(level))
        thread = builder.track(Track(run, 100 + run, 1, "main", "thread"))
        stream = builder.track(Track(run, 100 + run, 7, "stream", "stream"))
        on = {"run": run, "request": 0}
        builder.add(
            level=1, name=builder.text("predict"), start=[0], end=[us * US], track=thread, **on
        )
        if level == "model":
            continue
        conv, middle = builder.text("conv1"), us * US * 6 // 10
        builder.add(
            level=2,
            name=conv,
            type=builder.text("Conv"),
            start=[0],
            end=[middle],
            bytes=400,
            track=thread,
            **on,
        )
        relu = {"name": builder.text("relu"), "type": builder.text("Relu"), "bytes": 100}
        builder.add(level=2, start=[middle], end=[us * US], track=thread, **relu, **on)
        if level == "kernel":
            for ident, name, at, length, size_ in (
                (1, "gemm", 1, 30, -1),
                (2, "memcpy", 2, 10, 512),
                (3, "relu", middle + 1, 5, -1),
            ):
                builder.add(
                    level=3,
                    name=builder.text("launch"),
                    start=[at],
                    end=[at + 1],
                    track=thread,
                    correlation=ident,
                    **on,
                )
                kind = {
                    "type": builder.text("memcpy" if size_ > 0 else "kernel"),
                    "bytes": size_,
                    "correlation": ident,
                }
                builder.add(
                    level=4,
                    name=builder.text(name),
                    start=[at + 9],
                    end=[at + 9 + length * US],
                    track=stream,
                    **kind,
                    **on,
                )
    return builder.build()


def rows(kind: str, *traces: Trace) -> list[dict[str, Any]]:
    table = KINDS[kind].table([TraceContext(trace) for trace in traces or (traced(1, 100),)])
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]


def test_there_are_all_fifteen() -> None:
    numbered = {analysis.number: kind for kind, analysis in KINDS.items() if analysis.number}
    assert list(numbered) == [f"A{number}" for number in range(1, 16)]
    for kind in numbered.values():
        assert rows(kind), kind


def test_the_optimal_batch_is_the_last_doubling_that_gains_more_than_5_percent() -> None:
    assert optimal_batch_size({1: 100, 2: 190, 4: 200, 8: 209}) == 4
    assert optimal_batch_size({4: 400, 1: 100, 2: 200}) == 4
    assert optimal_batch_size({1: 100, 2: 105}) == 1
    assert optimal_batch_size({8: 5}) == 8


def test_a1_has_a_row_a_batch_size_with_its_throughput() -> None:
    found = rows("model", traced(1, 100), traced(2, 120), traced(4, 236))
    assert [(row["batch_size"], row["latency_us"], row["optimal"]) for row in found] == [
        (1, 100, False),
        (2, 120, True),
        (4, 236, False),
    ]
    assert found[0]["inputs_per_s"] == pytest.approx(10_000)


def test_a2_to_a7_are_of_layers_and_their_types() -> None:
    assert [(row["name"], row["latency_us"], row["bytes"]) for row in rows("layers")] == [
        ("conv1", 60, 400),
        ("relu", 40, 100),
    ]
    assert [row["bytes"] for row in rows("layer-memory")] == [400, 100]
    assert [(row["type"], row["share"]) for row in rows("types")] == [("Conv", 0.5), ("Relu", 0.5)]
    assert [(row["type"], row["share"]) for row in rows("latency-by-type")] == [
        ("Conv", 0.6),
        ("Relu", 0.4),
    ]
    assert [(row["type"], row["share"]) for row in rows("memory-by-type")] == [
        ("Conv", 0.8),
        ("Relu", 0.2),
    ]


def test_a8_a10_and_a11_are_of_kernels_the_longest_first() -> None:
    assert [(row["kernel"], row["layer"], row["total_us"]) for row in rows("kernels")] == [
        ("gemm", "conv1", 30),
        ("memcpy", "conv1", 10),
        ("relu", "relu", 5),
    ]
    assert [row["share"] for row in rows("kernels-by-name")] == pytest.approx(
        [30 / 45, 10 / 45, 5 / 45]
    )
    assert [(row["layer"], row["total_us"]) for row in rows("kernels-by-layer")] == [
        ("conv1", 40),
        ("relu", 5),
    ]


def test_a9_and_a14_put_layers_under_the_roof() -> None:
    (kernel, _) = rows("kernel-roofline")
    assert (kernel["kernel"], kernel["flops_per_byte"], kernel["bound"]) == ("gemm", 100, "compute")
    assert kernel["gflops_per_s"] == pytest.approx(6e6 / 30e-6 / 1e9)
    conv, relu = rows("layer-roofline")
    assert conv["gflops_per_s"] == pytest.approx(
        6e6 / 40e-6 / 1e9
    )  # by its kernels' time, copy and all
    assert (relu["bound"], relu["roof_gflops_per_s"]) == ("memory", pytest.approx(0.1))


def test_a12_and_a13_set_kernels_beside_layers() -> None:
    conv, relu = rows("metrics-by-layer")
    assert (conv["kernel_us"], conv["flops"], conv["copied_bytes"]) == (40, 6_000_000, 512)
    conv, relu = rows("gpu-and-cpu")
    assert (conv["latency_us"], conv["gpu_us"], conv["other_us"]) == (60, 40, 20)
    assert (relu["gpu_us"], relu["other_us"]) == (5, 35)


def test_a15_is_of_the_whole_model() -> None:
    (whole,) = rows("model-roofline")
    assert (whole["kernels"], whole["kernel_us"], whole["flops"]) == (3, 45, 6_001_000)
    assert whole["gflops_per_s"] == pytest.approx(6_001_000 / 100e-6 / 1e9)


def with_counters(level: str) -> Trace:
    """Two layers that run one by one, and what they counted: 6 faults and 2."""
    builder = TraceBuilder(TraceMetadata("net", "caffe-cpu-b1", 1, "caffe", "cpu"))
    builder.add_run(TraceRun(level))
    on = {"run": 0, "request": 0, "track": builder.track(Track(0, 1, 1, "main", "thread"))}
    builder.add(level=1, name=builder.text("predict"), start=[10], end=[40], **on)
    for name, start in (("conv1", 10), ("relu", 30)):
        builder.add(
            level=2,
            name=builder.text(name),
            type=builder.text("T"),
            start=[start],
            end=[start + 9],
            **on,
        )
    builder.count(
        CounterSeries("page-faults", "count", 0, True),
        np.array([5, 25, 45]),
        np.array([1.0, 7.0, 9.0]),
    )
    return builder.build()


def test_counters_are_asked_for_by_layer_with_their_share_and_by_phase() -> None:
    found = rows("counters-by-layer", with_counters("layer+hardware"))
    assert [(row["layer"], row["per_call"], row["share"]) for row in found] == [
        ("conv1", 6, 0.75),
        ("relu", 2, 0.25),
    ]
    (row,) = rows("counters", with_counters("hardware"))
    assert (row["phase"], row["counter"], row["per_call"], row["most"]) == (
        "predict",
        "page-faults",
        8,
        None,
    )


@pytest.mark.parametrize("form", ["table", "csv", "json"])
def test_the_command_tells_counters_in_every_form(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    monkeypatch.setenv("COLUMNS", "160")  # where names fold is the table's own affair
    run = str(kept(tmp_path, with_counters("layer+hardware")))
    assert main(["analyze", run, "--kind", "counters-by-layer", "--format", form]) == 0
    text = capsys.readouterr().out
    assert all(word in text for word in ("page-faults", "conv1", "0.75"))


def test_without_static_counts_or_peaks_the_roofline_is_unknown() -> None:
    (row, _) = rows("layer-roofline", traced(1, 100, static=()))
    assert (row["flops"], row["bound"]) == (None, None)
    (row, _) = rows("layer-roofline", traced(1, 100, peaks=None))
    assert (row["flops"], row["bound"]) == (6_000_000, None)


def test_the_roof_is_the_lesser_of_both_peaks() -> None:
    low, high = point(Work(10, 10), 1e-9, PEAKS), point(Work(1000, 10), 1e-9, PEAKS)
    assert low is not None
    assert high is not None
    assert (low.bound, low.attainable_gflops_per_s, low.efficiency) == ("memory", 10, 1)
    assert (high.bound, high.attainable_gflops_per_s) == ("compute", 100)
    assert point(Work(0, 10), 1, PEAKS) is None


def layer(name: str, kind: str) -> LayerRow:
    return LayerRow(0, name, kind, "", 1, 1.0, 1.0, None, None)


def test_layers_with_other_names_are_matched_by_the_order_of_what_computes() -> None:
    static = [
        LayerWork("a", "Conv", 100, 7),
        LayerWork("b", "Relu", 1, 2),
        LayerWork("c", "Gemm", 50, 3),
    ]
    fused = [layer("x_nchwc", "Conv"), layer("reorder", "ReorderOutput"), layer("y", "FusedMatMul")]
    assert match(fused, static) == [Work(101, 7), None, Work(50, 3)]
    named = [layer("a", "aten.convolution"), layer("b", "aten.relu"), layer("c", "aten.linear")]
    assert match(named, static) == [Work(100, 7), Work(1, 2), Work(50, 3)]
    other = [layer("x", "Conv"), layer("y", "Conv"), layer("z", "InnerProduct")]
    assert match(other, static) == [None, None, None]


def test_a_fused_layer_with_the_name_of_its_last_part_has_the_work_of_its_product() -> None:
    static = [
        LayerWork("conv", "Conv2D", 100, 7),
        LayerWork("relu", "Relu", 0, 2),
    ]
    assert match([layer("relu", "_FusedConv2D")], static) == [Work(100, 7)]


def kept(folder: Path, *traces: Trace) -> Path:
    for number, trace in enumerate(traces):
        place = folder / "items" / str(number)
        place.mkdir(parents=True)
        save_trace(trace, place / "trace.npz")
    return folder


def test_the_command_gives_tables_csv_and_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = str(kept(tmp_path, traced(2, 120), traced(1, 100)))
    assert main(["analyze", run, "--kind", "A1", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["batch_size"] for row in found] == [1, 2]
    assert main(["analyze", run, "--kind", "layers", "--format", "csv", "-k", "b2"]) == 0
    listed = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [(row["case"], row["name"]) for row in listed] == [
        ("ort-cpu-b2", "conv1"),
        ("ort-cpu-b2", "relu"),
    ]
    assert main(["analyze", run, "--kind", "model"]) == 0
    assert "inputs_per_s" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["--kind", "A16"],
            "there is no analysis 'A16'; write one of model \\(A1\\).*, counters, counters-by-layer",
        ),
        (["--kind", ""], "there is no analysis ''"),
        (["--kind", "A1", "-k", "resnet"], "has no trace of 'resnet'"),
    ],
)
def test_what_cannot_be_asked_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    assert main(["analyze", str(kept(tmp_path, traced(1, 100))), *arguments]) == 2
    captured = capsys.readouterr()
    assert pytest.importorskip("re").search(words, captured.err)


def test_a_run_without_traces_is_told(tmp_path: Path) -> None:
    with pytest.raises(MlmsError, match="has no traces"):
        contexts_of(tmp_path)
    with pytest.raises(MlmsError, match="there is no .*nowhere; name a trace"):
        contexts_of(tmp_path / "nowhere")


def test_an_empty_table_says_which_levels_were_traced_and_what_they_lacked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = traced(1, 100, levels=("layer", "hardware"))
    runs = list(trace.runs)
    runs[1] = replace(runs[1], probes=(ProbeStatus("layers", True),))
    trace = replace(trace, runs=tuple(runs))
    assert (
        main(
            [
                "analyze",
                str(kept(tmp_path, trace)),
                "--kind",
                "counters-by-layer",
                "--format",
                "csv",
            ]
        )
        == 0
    )
    printed = capsys.readouterr()
    assert len(printed.out.splitlines()) == 1
    assert printed.err == (
        "levels traced: layer, hardware\n"
        "nothing to see at level hardware in 1 item: nothing was seen of it\n"
        "no counters by layer in 1 item: ort runs all layers in one call\n"
    )


def test_tables_are_as_wide_as_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table(
        ("model", "layer", "us"),
        tuple(("a-model-of-many-words", f"layer {'long ' * 20}", 1.5) for _ in "ab"),
    )
    for columns in (60, 100):
        monkeypatch.setenv("COLUMNS", str(columns))
        assert columns - 5 <= max(map(len, render(table, "table").splitlines())) <= columns


def test_a_table_without_rows_says_so() -> None:
    assert "nothing was seen" in render(Table(("a",), ()), "table")
    assert find_analysis("a14") is KINDS["layer-roofline"]


def test_the_export_is_otlp_with_kernels_below_their_layers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.common.trace_encoder")
    trace = traced(1, 100, wall_offset_ns=5_000_000_000)
    assert main(["export", str(kept(tmp_path, trace)), str(tmp_path / "out")]) == 0
    (path,) = (tmp_path / "out").iterdir()
    (resource,) = json.loads(path.read_text())["resourceSpans"]
    spans = [span for scope in resource["scopeSpans"] for span in scope["spans"]]
    assert f"{len(spans)} spans" in capsys.readouterr().out
    by_id = {span["spanId"]: span for span in spans}
    assert all(len(ident) == 16 and int(ident, 16) for ident in by_id)
    gemm = next(span for span in spans if span["name"] == "gemm")
    launch = by_id[gemm["parentSpanId"]]
    assert (launch["name"], by_id[launch["parentSpanId"]]["name"]) == ("launch", "conv1")
    assert int(gemm["endTimeUnixNano"]) - int(gemm["startTimeUnixNano"]) == 30 * US
    assert isinstance(gemm["kind"], int)
    assert min(int(span["startTimeUnixNano"]) for span in spans) == 5_000_000_000, (
        "as the clock stood when it was traced"
    )


def test_an_export_that_can_not_be_written_says_so_and_leaves_no_half(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.common.trace_encoder")
    run = str(kept(tmp_path / "run", traced(1, 100, wall_offset_ns=0)))
    (tmp_path / "file").write_text("")
    assert main(["export", run, str(tmp_path / "file")]) == 2
    assert "file can't be a folder: File exists; name another" in capsys.readouterr().err
    (tmp_path / "out" / "0.otlp.json").mkdir(parents=True)
    assert main(["export", run, str(tmp_path / "out")]) == 2
    assert "0.otlp.json can't be written: Is a directory" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["0.otlp.json"]
