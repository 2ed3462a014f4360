"""The tables say what the spans say."""

from __future__ import annotations

import csv
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pytest_mlms.trace.builder import TraceBuilder
from pytest_mlms.trace.correlate import parents_of
from pytest_mlms.trace.csv_table import write_table
from pytest_mlms.trace.grouping import trimmed_mean
from pytest_mlms.trace.latency import layer_coverage, model_latency
from pytest_mlms.trace.runs import TraceRun
from pytest_mlms.trace.spans import Spans, Trace, Track
from pytest_mlms.trace.tables import (
    KernelRow,
    LayerRow,
    kernel_rows,
    layer_rows,
)

US = 1000


def leveled() -> Trace:
    """Five requests at each level: a model of 100 µs with a conv of 60 and two relus of 15.

    Profiling makes it slower.
    """
    builder = TraceBuilder()
    for run, (level, slower) in enumerate([("model", 1), ("layer", 2), ("kernel", 3)]):
        builder.add_run(TraceRun(level))
        thread = builder.track(Track(run, 100 + run, 1, "main", "thread"))
        stream = builder.track(Track(run, 100 + run, 7, "stream 7", "stream"))
        for request in range(5):
            one_request(builder, run, request, slower, thread, stream)
    return builder.build()


def one_request(
    builder: TraceBuilder, run: int, request: int, slower: int, thread: int, stream: int
) -> None:
    at = 10**12 * (run + 1) + request * 10**6
    on = {"track": thread, "run": run, "request": request}
    builder.add(
        level=1, name=builder.text("predict"), start=[at], end=[at + 100 * US * slower], **on
    )
    if run == 0:
        return
    start = at
    for name, kind, length in (("conv1", "Conv", 60), ("relu", "Relu", 15), ("relu", "Relu", 15)):
        end = start + length * US * slower
        names = {"name": builder.text(name), "type": builder.text(kind)}
        builder.add(level=2, start=[start], end=[end], bytes=4096, **names, **on)
        if run == 2:
            ident = 10 * request + 1 + (start - at) // US
            builder.add(
                level=3,
                name=builder.text("launch"),
                start=[start + 1],
                end=[start + 5],
                correlation=ident,
                **on,
            )
            where = {"track": stream, "run": run, "request": request, "correlation": ident}
            kernel = {"name": builder.text(f"k_{kind}"), "type": builder.text("kernel")}
            builder.add(
                level=4, start=[start + 9], end=[start + 9 + length * US], **kernel, **where
            )
        start = end


def test_layers_are_told_apart_by_name_and_by_how_often_it_came() -> None:
    trace = leveled()
    rows = layer_rows(trace, parents_of(trace))
    assert [(row.index, row.name, row.type, row.calls) for row in rows] == [
        (0, "conv1", "Conv", 5),
        (1, "relu", "Relu", 5),
        (2, "relu", "Relu", 5),
    ]
    assert all(row.bytes == 4096 for row in rows)


def test_a_layers_latency_is_that_of_the_run_in_which_layers_were_the_deepest() -> None:
    trace = leveled()
    rows = layer_rows(trace, parents_of(trace))
    assert [row.latency_us for row in rows] == [120, 30, 30]
    assert sum(row.share for row in rows) == pytest.approx(1)


def test_a_layers_kernel_time_is_what_its_launches_ran() -> None:
    trace = leveled()
    assert [row.kernel_us for row in layer_rows(trace, parents_of(trace))] == [60, 15, 15]


def test_kernels_are_counted_by_request_and_layer() -> None:
    trace = leveled()
    rows = kernel_rows(trace, parents_of(trace))
    assert [(row.name, row.layer, row.calls, row.total_us) for row in rows] == [
        ("k_Conv", "conv1", 1, 60),
        ("k_Relu", "relu", 2, 30),
    ]


def test_kernels_of_a_call_that_warms_up_do_not_count() -> None:
    trace = leveled()
    early = trace.spans.take((trace.spans.run == 2) & (trace.spans.level >= 3))
    elsewhen = {"request": np.full(len(early), -1, "i4"), "correlation": early.correlation + 10**6}
    elsewhen |= {name: getattr(early, name) - 10**9 for name in ("start", "end")}
    early = replace(early, **elsewhen)
    warmed = trace.with_spans(Spans.join([trace.spans, early]))
    assert kernel_rows(warmed, parents_of(warmed)) == kernel_rows(trace, parents_of(trace))
    lost = trace.with_spans(Spans.join([trace.spans, early.take(early.at("kernel"))]))
    assert {row.layer for row in kernel_rows(lost, parents_of(lost))} == {"conv1", "relu", ""}, (
        "without any launch"
    )


def test_the_models_latency_is_that_of_the_run_without_profiling() -> None:
    trace = leveled()
    assert model_latency(trace) == 100
    assert model_latency(trace, "layer") == 200
    assert model_latency(trace, "hardware") is None


def test_the_layers_share_of_the_model_is_that_of_their_own_run() -> None:
    trace = leveled()
    assert layer_coverage(trace) == pytest.approx(0.9)


def test_a_block_that_holds_layers_counts_once() -> None:
    builder = TraceBuilder()
    builder.add_run(TraceRun("layer"))
    track = builder.track(Track(0, 1, 1, "main", "thread"))
    on = {"level": 2, "track": track, "run": 0, "request": 0}
    for name, start, end in (("block", 0, 100), ("conv", 10, 50), ("fc", 100, 120)):
        builder.add(name=builder.text(name), start=[start], end=[end], **on)
    trace = builder.build()
    assert [row.name for row in layer_rows(trace, parents_of(trace))] == ["block", "fc"]


def test_a_trace_without_a_level_has_no_rows_of_it() -> None:
    trace = TraceBuilder().build()
    parents = parents_of(trace)
    assert layer_rows(trace, parents) == []
    assert kernel_rows(trace, parents) == []
    assert layer_coverage(trace) is None


def test_a_trimmed_mean_leaves_out_both_ends() -> None:
    assert trimmed_mean(np.array([1000, 2, 3, 4, -1000])) == 3
    assert trimmed_mean(np.array([5])) == 5
    assert math.isnan(trimmed_mean(np.array([])))


def test_a_table_is_written_with_its_columns_also_without_rows(tmp_path: Path) -> None:
    path = tmp_path / "layers.csv"
    write_table(path, [], LayerRow)
    assert path.read_text() == "index,name,type,shape,calls,latency_us,share,bytes,kernel_us\n"
    write_table(path, [KernelRow("k, the first", "kernel", "", 2.0, 1.5, 3.0, None)], KernelRow)
    (row,) = csv.DictReader(path.open(newline=""))
    assert list(row.values()) == ["k, the first", "kernel", "", "2", "1.5", "3", ""]
    assert [file.name for file in tmp_path.iterdir()] == ["layers.csv"]
