"""Timelines of traces."""

from __future__ import annotations

import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_mlms.measure.trace.records import LayerWork, Peaks, TraceMetadata
from pytest_mlms.measure.trace.storage import save_trace
from pytest_mlms.measure.trace.summary import TraceContext
from pytest_mlms.show.pages.layers import roof_points
from pytest_mlms.show.pages.traces import (
    Timeline,
    TimelineSpan,
    read_trace,
    timeline_chart,
    timelines_of,
)
from tests.show.pages.test_mistakes import item_with
from tests.support.result_lines import HOSTILE
from tests.support.svg import marks
from tests.support.traces import TraceWriter

MICROSECOND = 1000  # nanoseconds


def three_calls() -> TraceWriter:
    """Write a request on pytest's side, and three calls with two layers, the last one the median."""
    writer = TraceWriter()
    run = writer.run("application", calls=1)
    run.span("application", "request", 0, 9 * MICROSECOND)
    run.span("application", "pre-process", MICROSECOND, 3 * MICROSECOND)
    run.span("application", "decode", MICROSECOND, 2 * MICROSECOND)
    run = writer.run("layer", calls=3)
    for request, length in enumerate((10, 30, 20)):
        run.request = request
        begin = request * 100 * MICROSECOND
        run.predict(begin, begin + length * MICROSECOND)
        run.layer("first", begin + MICROSECOND, begin + 4 * MICROSECOND)
        run.layer("second", begin + 4 * MICROSECOND, begin + 9 * MICROSECOND, type="Conv")
    return writer


def test_a_file_of_spans_that_unpacks_to_too_much_is_left_out(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "trace.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("tables.npy", bytes(257 << 20))
    item = item_with(tmp_path, "")
    assert read_trace(replace(item, artifacts={"trace.npz": "trace.npz"})) is None


def test_nested_spans_have_lanes_below_their_parents() -> None:
    request, _ = timelines_of(three_calls().build())
    assert request.level == "application"
    assert list(request.lanes) == ["application", "", ""]
    assert [(span.name, span.lane) for span in request.spans] == [
        ("request", 0),
        ("pre-process", 1),
        ("decode", 2),
    ]


def test_the_median_call_of_the_innermost_level_is_shown() -> None:
    _, call = timelines_of(three_calls().build())
    assert (call.level, call.calls, call.us) == ("layer", 3, 20)
    assert list(call.lanes) == ["model", "layer"]
    second = call.spans[-1]
    assert (second.name, second.type, second.start, second.end) == ("second", "Conv", 4, 9)


def test_of_many_spans_the_longest_are_shown_and_the_rest_summed() -> None:
    writer = TraceWriter()
    run = writer.run("layer", calls=1)
    run.predict(0, 2000 * MICROSECOND)
    for number in range(1000):
        begin = 2 * number * MICROSECOND
        run.layer(f"layer {number}", begin, begin + (1 + number % 2) * MICROSECOND)
    (call,) = timelines_of(writer.build())
    assert len(call.spans) == 240
    assert call.left_out == 761
    shown = sum(span.end - span.start for span in call.spans if span.lane == 1)
    assert shown + call.left_out_us == pytest.approx(1500)


def test_runs_that_do_not_count_are_not_shown() -> None:
    writer = TraceWriter()
    writer.run("layer", calls=1, void="no probe was available").predict(0, 10)
    assert timelines_of(writer.build()) == []


def test_layers_are_under_the_roof_of_the_device() -> None:
    work = LayerWork("second", "Conv", flops=100_000, bytes=10_000)
    metadata = TraceMetadata(static=(work,), peaks=Peaks(1e11, 1e10, "given"))
    context = TraceContext(replace(three_calls().build(), metadata=metadata))
    _, (point,) = roof_points(context)
    assert point.name == "second"
    assert point.intensity == 10
    assert point.gflops_per_s == pytest.approx(20)
    assert point.bound == "compute"


def test_a_file_that_is_no_trace_says_nothing(tmp_path: Path) -> None:
    item = replace(item_with(tmp_path, ""), artifacts={"trace.npz": "p.csv"})
    assert read_trace(item) is None
    save_trace(three_calls().build(), tmp_path / "t.npz")
    assert read_trace(replace(item, artifacts={"trace.npz": "t.npz"})) is not None


def test_a_timeline_has_a_bar_for_each_span_with_its_times() -> None:
    spans = [
        TimelineSpan(0, 0, 100, "predict", ""),
        TimelineSpan(1, 10, 60, f"conv {HOSTILE}", "Conv"),
    ]
    svg = timeline_chart(Timeline("layer", 3, 100, ["model", "layer"], spans), {"Conv": "c0"})
    assert len(marks(svg, "rect")) == 2
    titles = [title.text or "" for title in marks(svg, "title")]
    assert "predict: 100 µs from 0 s" in titles
    assert any(title.endswith(": 50.0 µs from 10.0 µs, Conv") for title in titles)
    assert "<script>" not in svg
