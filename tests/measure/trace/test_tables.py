"""Tables of layers and kernels, their keys, and their CSV files."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pytest_mlms.measure.trace.correlate import parents_of
from pytest_mlms.measure.trace.spans import Spans, Trace
from pytest_mlms.measure.trace.tables import (
    KernelRow,
    LayerKey,
    LayerRow,
    kernel_rows,
    layer_rows,
    layers_of_run,
    write_table,
)
from tests.support.traces import RunWriter, TraceWriter

US = 1000
LAYERS = (("conv1", "Conv", 60), ("relu", "Relu", 15), ("relu", "Relu", 15))


def test_kernels_whose_layers_are_unknown_make_no_layer_without_kernels() -> None:
    writer = TraceWriter()
    for level in ("layer", "kernel"):
        run = writer.run(level)
        run.request = 0
        write_request(run, level, 1)
    trace = writer.build()
    lost = replace(parents_of(trace), index=np.full(len(trace.spans), -1))
    assert {row.kernel_us for row in layer_rows(trace, lost)} == {None}


def leveled() -> Trace:
    """Five requests at each level: a model of 100 µs with a conv of 60 and two relus of 15.

    Tracing layers makes it two times slower, and tracing kernels three times.
    """
    writer = TraceWriter()
    for level, slower in (("model", 1), ("layer", 2), ("kernel", 3)):
        run = writer.run(level)
        for request in range(5):
            run.request = request
            write_request(run, level, slower)
    return writer.build()


def write_request(run: RunWriter, level: str, slower: int) -> None:
    start = 10**12 + run.request * 10**6
    run.predict(start, start + 100 * US * slower)
    if level == "model":
        return
    for number, (name, kind, length) in enumerate(LAYERS):
        end = start + length * US * slower
        run.layer(name, start, end, type=kind, bytes=4096)
        if level == "kernel":
            correlation = 10 * run.request + number + 1
            run.launch(start + 1, start + 5, correlation)
            run.kernel(f"k_{kind}", start + 9, start + 9 + length * US, correlation=correlation)
        start = end


def layers_of(trace: Trace) -> list[LayerRow]:
    return layer_rows(trace, parents_of(trace))


def kernels_of(trace: Trace) -> list[KernelRow]:
    return kernel_rows(trace, parents_of(trace))


def test_layers_have_the_order_in_which_they_run() -> None:
    rows = layers_of(leveled())
    assert [row.index for row in rows] == [0, 1, 2]
    assert [row.name for row in rows] == ["conv1", "relu", "relu"]
    assert [row.type for row in rows] == ["Conv", "Relu", "Relu"]
    assert [row.calls for row in rows] == [5, 5, 5]
    assert [row.bytes for row in rows] == [4096, 4096, 4096]


def test_the_latency_of_a_layer_is_that_of_the_run_in_which_layers_were_the_deepest() -> None:
    rows = layers_of(leveled())
    assert [row.latency_us for row in rows] == [120, 30, 30]
    assert sum(row.share for row in rows) == pytest.approx(1)


def test_the_kernel_time_of_a_layer_is_that_of_the_kernels_it_launched() -> None:
    rows = layers_of(leveled())
    assert [row.kernel_us for row in rows] == [60, 15, 15]


def test_layers_have_no_kernel_time_without_a_kernel_run() -> None:
    writer = TraceWriter()
    writer.run("layer").layer("conv", 0, 0)
    (row,) = layers_of(writer.build())
    assert row.kernel_us is None
    assert row.bytes is None
    assert row.share == 0


def test_kernels_are_counted_by_request_and_layer() -> None:
    conv, relu = kernels_of(leveled())
    assert conv.name == "k_Conv"
    assert conv.layer == "conv1"
    assert conv.calls == 1
    assert conv.total_us == 60
    assert relu.name == "k_Relu"
    assert relu.layer == "relu"
    assert relu.calls == 2
    assert relu.total_us == 30


def test_kernels_of_a_warm_up_call_do_not_count() -> None:
    trace = leveled()
    warm_up = trace.spans.take(trace.spans.in_run(2) & (trace.spans.level >= 3))
    earlier = replace(
        warm_up,
        request=np.full(len(warm_up), -1, "i4"),
        correlation=warm_up.correlation + 10**6,
        start=warm_up.start - 10**9,
        end=warm_up.end - 10**9,
    )
    warmed = trace.with_spans(Spans.join([trace.spans, earlier]))
    assert kernels_of(warmed) == kernels_of(trace)


def test_kernels_without_a_launch_have_no_layer() -> None:
    trace = leveled()
    kernels = trace.spans.take(trace.spans.at("kernel"))
    lost = replace(kernels, correlation=kernels.correlation + 10**6)
    found = kernels_of(trace.with_spans(Spans.join([trace.spans, lost])))
    assert {row.layer for row in found} == {"conv1", "relu", ""}


def test_a_trace_without_a_level_has_no_rows_of_it() -> None:
    trace = TraceWriter().build()
    assert layers_of(trace) == []
    assert kernels_of(trace) == []


def test_layers_of_one_name_are_told_apart_by_their_occurrence_in_a_request() -> None:
    writer = TraceWriter()
    run = writer.run("layer")
    for request in range(2):
        run.request = request
        at = 100 * request
        run.layer("relu", at, at + 5)
        run.layer("relu", at + 10, at + 15)
    layers = layers_of_run(writer.build(), 0)
    assert layers.keys == [LayerKey("relu", "T", 0), LayerKey("relu", "T", 1)] * 2
    spans_by_key = layers.by_key()
    assert spans_by_key[LayerKey("relu", "T", 1)].tolist() == [1, 3]


def test_a_block_that_holds_layers_counts_once() -> None:
    writer = TraceWriter()
    run = writer.run("layer")
    run.layer("block", 0, 100)
    run.layer("conv", 10, 50)
    run.layer("fc", 100, 120)
    layers = layers_of_run(writer.build(), 0)
    assert [key.name for key in layers.keys] == ["block", "fc"]


def test_layers_outside_of_any_request_do_not_count() -> None:
    writer = TraceWriter()
    writer.run("layer").layer("warm-up", 0, 5, request=-1)
    assert layers_of_run(writer.build(), 0).keys == []


def test_there_are_no_layers_without_a_run() -> None:
    layers = layers_of_run(TraceWriter().build(), None)
    assert layers.keys == []
    assert len(layers.spans) == 0


def test_a_table_without_rows_has_its_header(tmp_path: Path) -> None:
    path = tmp_path / "layers.csv"
    write_table(path, [], LayerRow)
    header = "index,name,type,shape,calls,latency_us,share,bytes,kernel_us"
    assert path.read_text().splitlines() == [header]


def test_cells_are_quoted_rounded_and_empty_where_nothing_is_known(tmp_path: Path) -> None:
    path = tmp_path / "kernels.csv"
    kernel = KernelRow("k, the first", "kernel", "", 2.0, 1.23456789, 3.0, None)
    write_table(path, [kernel], KernelRow)
    with path.open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert list(row.values()) == ["k, the first", "kernel", "", "2", "1.23457", "3", ""]


def test_nothing_else_is_left_in_the_folder(tmp_path: Path) -> None:
    path = tmp_path / "layers.csv"
    write_table(path, [], LayerRow)
    assert list(tmp_path.iterdir()) == [path]
