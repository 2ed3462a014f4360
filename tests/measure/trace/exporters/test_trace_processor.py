"""Perfetto files, read by Perfetto's own trace processor: one by hand, and one of a real item."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_mlms.measure.trace.exporters import perfetto
from pytest_mlms.measure.trace.storage import load_trace
from tests.measure.trace.exporters.test_perfetto import launch
from tests.support.project import Project
from tests.support.trace_processor import TraceProcessor, open_trace

pytestmark = pytest.mark.slow

THREAD_SLICES = """
    select thread.name, process.name, slice.name, depth
    from slice
    join thread_track on track_id = thread_track.id
    join thread using (utid)
    join process using (upid)
"""
STREAM_SLICES = """
    select track.name, slice.name, slice.dur
    from slice
    join process_track as track on track_id = track.id
"""
ARROWS = """
    select source.name, target.name
    from flow
    join slice source on slice_out = source.id
    join slice target on slice_in = target.id
"""
COUNTERS = """
    select distinct counter_track.name, unit
    from counter
    join counter_track on track_id = counter_track.id
"""
ERRORS = "select name, value from stats where value > 0 and severity in ('error', 'data_loss')"


def assert_no_errors(engine: TraceProcessor) -> None:
    assert engine.query(ERRORS) == []


def test_a_kernel_lies_on_its_stream_with_an_arrow_from_its_launch(tmp_path: Path) -> None:
    path = tmp_path / "t.pftrace"
    perfetto.export(launch(), path, "item")
    with open_trace(path) as engine:
        assert_no_errors(engine)
        assert sorted(engine.query(THREAD_SLICES)) == [
            ("main", "agent, kernel run", "conv1", 1),
            ("main", "agent, kernel run", "launch", 2),
            ("main", "agent, kernel run", "predict", 0),
        ]
        assert engine.query(STREAM_SLICES) == [("stream 7", "sgemm", 25)]
        assert engine.query(ARROWS) == [("launch", "sgemm")]
        assert engine.query(COUNTERS) == [("power", "W")]


def test_the_trace_of_an_item_has_a_process_for_each_run(project: Project) -> None:
    project.edit("batch_sizes: [1, 8, 64]", "batch_sizes: [8]")
    result = project.run("-k", "trace and onnxruntime", "--mlms-trace=layer,hardware")
    result.assert_outcomes(passed=1)
    (item,) = project.items()
    trace = load_trace(project.results / item["artifacts"]["trace.npz"])
    with open_trace(project.results / item["artifacts"]["trace.pftrace"]) as engine:
        assert_no_errors(engine)
        assert engine.query("select count(*) from slice") == [(len(trace.spans),)]
        slices = engine.query(THREAD_SLICES)
        counters = engine.query(COUNTERS)
    processes = {process for _, process, _, _ in slices}
    assert processes == {"pytest", "agent, model run", "agent, layer run", "agent, hardware run"}
    of_pytest = {name for _, process, name, _ in slices if process == "pytest"}
    assert of_pytest >= {"request", "pre-process", "decode", "post-process"}
    layers = set(trace.texts(trace.spans.name[trace.spans.at("layer")]))
    places = {(process, depth) for _, process, name, depth in slices if name in layers}
    assert places == {("agent, layer run", 1)}, "layers lie inside of their calls"
    assert set(counters) == {(series.name, series.unit) for series in trace.series}
