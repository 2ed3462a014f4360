"""Traces as Perfetto's own trace processor reads them.

One by hand with a GPU's kernels, and one of a real item.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_mlms.trace.correlate import find_parents
from pytest_mlms.trace.exporters.perfetto import write_perfetto
from pytest_mlms.trace.storage import load_trace
from tests.support.project import Project
from tests.support.trace_processor import TraceProcessor, open_trace
from tests.trace.exporters.test_perfetto import launch

pytestmark = pytest.mark.slow

SLICES = "select thread.name, process.name, slice.name, depth from slice join thread_track on track_id = thread_track.id"
JOINED = " join thread using (utid) join process using (upid)"
COUNTERS = "select distinct counter_track.name, unit from counter join counter_track on track_id = counter_track.id"
ERRORS = "select name, value from stats where value > 0 and severity in ('error', 'data_loss')"


def no_errors(engine: TraceProcessor) -> None:
    assert engine.query(ERRORS) == []


def test_a_kernel_lies_on_its_stream_with_an_arrow_from_its_launch_inside_of_the_layer(
    tmp_path: Path,
) -> None:
    trace, path = launch(), tmp_path / "t.pftrace"
    write_perfetto(trace, find_parents(trace.spans, trace.devices).index, path)
    with open_trace(path) as engine:
        no_errors(engine)
        assert sorted(engine.query(SLICES + JOINED)) == [
            ("main", "agent, kernel run", "conv1", 1),
            ("main", "agent, kernel run", "cudaLaunchKernel", 2),
            ("main", "agent, kernel run", "predict", 0),
        ]
        streams = "select track.name, slice.name, slice.dur from slice join process_track as track on track_id = track.id"
        assert engine.query(streams) == [("stream 7", "sgemm", 25)]
        flow = "select a.name, b.name from flow join slice a on slice_out = a.id join slice b on slice_in = b.id"
        assert engine.query(flow) == [("cudaLaunchKernel", "sgemm")]
        assert engine.query(COUNTERS) == [("power", "W")]


def test_a_trace_of_an_item_has_a_process_a_run_its_layers_inside_of_their_calls_and_its_counters(
    project: Project,
) -> None:
    project.edit("batch_sizes: [1, 8, 64]", "batch_sizes: [8]")
    project.run("-k", "trace and onnxruntime", "--mlms-trace=layer,hardware").assert_outcomes(
        passed=1
    )
    (item,) = project.items()
    folder = project.path / "mlms-results" / "latest"
    trace = load_trace(folder / item["artifacts"]["trace.npz"])
    with open_trace(folder / item["artifacts"]["trace.pftrace"]) as engine:
        no_errors(engine)
        assert engine.query("select count(*) from slice") == [(len(trace.spans),)]
        rows = engine.query(SLICES + JOINED)
        assert {row[1] for row in rows} == {
            "pytest",
            "agent, model run",
            "agent, layer run",
            "agent, hardware run",
        }
        layers = set(trace.texts(trace.spans.name[trace.spans.at("layer")]))
        assert {(row[1], row[3]) for row in rows if row[2] in layers} == {("agent, layer run", 1)}
        assert {row[2] for row in rows if row[1] == "pytest"} >= {
            "request",
            "pre-process",
            "decode",
            "post-process",
        }
        assert set(engine.query(COUNTERS)) == {
            (series.name, series.unit) for series in trace.series
        }
