"""Tracks of a Perfetto file."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pytest_mlms.measure.trace.exporters.perfetto_events import TrackLayout, lay_out
from pytest_mlms.measure.trace.spans import Trace
from tests.support.traces import TraceWriter

pb2 = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")


def layout_of(trace: Trace) -> TrackLayout:
    return lay_out(trace, np.ones(len(trace.spans), bool))


def tracks_of(layout: TrackLayout) -> dict[int, Any]:
    """Return the descriptors of tracks by their uuids."""
    parsed = pb2.Trace()
    parsed.ParseFromString(b"".join(layout.packets))
    descriptors = [packet.track_descriptor for packet in parsed.packet]
    return {descriptor.uuid: descriptor for descriptor in descriptors}


def test_a_span_lies_on_the_track_of_its_thread_or_stream() -> None:
    writer = TraceWriter()
    run = writer.run("kernel")
    run.predict(0, 100)
    run.kernel("gemm", 50, 150)
    layout = layout_of(writer.build())
    tracks = tracks_of(layout)
    thread, stream = (tracks[uuid] for uuid in layout.uuids.tolist())
    assert thread.thread.thread_name == "main"
    assert stream.name == "stream 7"
    assert thread.parent_uuid == stream.parent_uuid == 100
    assert tracks[100].process.process_name == "agent, kernel run"


def test_spans_that_overlap_on_a_thread_have_tracks_of_their_own() -> None:
    writer = TraceWriter()
    run = writer.run("layer")
    run.layer("one", 0, 10)
    run.layer("two", 5, 15)
    layout = layout_of(writer.build())
    first, second = layout.uuids.tolist()
    assert first != second
    assert tracks_of(layout)[second].name == "main, at the same time"


def test_a_track_without_a_chosen_span_is_left_out() -> None:
    writer = TraceWriter()
    run = writer.run("kernel")
    run.predict(0, 100)
    run.kernel("gemm", 50, 150)
    trace = writer.build()
    layout = lay_out(trace, trace.spans.at("model"))
    names = {descriptor.name for descriptor in tracks_of(layout).values()}
    assert "stream 7" not in names


def test_agents_of_one_process_id_are_processes_of_their_own() -> None:
    writer = TraceWriter()
    for level in ("model", "kernel"):
        writer.run(level).predict(0, 100)
    trace = writer.build()
    shared = replace(trace, tracks=tuple(track._replace(process=1) for track in trace.tracks))
    tracks = tracks_of(layout_of(shared))
    processes = [each.process for each in tracks.values() if each.HasField("process")]
    assert [process.process_name for process in processes] == [
        "agent, model run",
        "agent, kernel run",
    ]
    assert len({process.pid for process in processes}) == 2
    parents = {each.parent_uuid for each in tracks.values() if each.HasField("thread")}
    assert parents == {uuid for uuid, each in tracks.items() if each.HasField("process")}


def test_no_process_id_is_the_number_of_a_track() -> None:
    writer = TraceWriter()
    writer.run("kernel").predict(0, 100)
    trace = writer.build()
    largest = replace(
        trace, tracks=tuple(track._replace(process=1 << 20) for track in trace.tracks)
    )
    assert len(tracks_of(layout_of(largest))) == 2
