"""Tracks and events of a Perfetto file, and their order."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_mlms.measure.trace.correlate import parents_of
from pytest_mlms.measure.trace.exporters.perfetto_events import (
    SpanEvents,
    TrackLayout,
    counter_packets,
    event_order,
    find_flows,
    lanes,
    lay_out,
)
from pytest_mlms.measure.trace.spans import Trace
from tests.support.traces import TraceWriter

Interval = tuple[int, int]

pairs = st.tuples(st.integers(0, 30), st.integers(0, 15))
intervals = st.lists(pairs.map(lambda pair: (pair[0], pair[0] + pair[1])), min_size=1, max_size=30)


def lanes_of(rows: list[Interval]) -> list[int]:
    start, end = np.array(rows).T
    found: list[int] = lanes(start, end).tolist()
    return found


def events_of(rows: list[Interval]) -> list[str]:
    """Return the events in their order: ``+0`` is the begin of span 0, ``-0`` its end."""
    start, end = np.array(rows).T
    order = event_order(start, end)
    events = []
    for span, begins in zip(order.span, order.begins, strict=True):
        sign = "+" if begins else "-"
        events.append(f"{sign}{span}")
    return events


def test_an_inner_span_begins_after_an_outer_one_at_the_same_time() -> None:
    assert events_of([(0, 10), (0, 20)]) == ["+1", "+0", "-0", "-1"]


def test_an_inner_span_ends_before_an_outer_one_at_the_same_time() -> None:
    assert events_of([(5, 20), (0, 20)]) == ["+1", "+0", "-0", "-1"]


def test_a_span_ends_before_the_next_begins_at_the_same_time() -> None:
    assert events_of([(10, 20), (0, 10)]) == ["+1", "-1", "+0", "-0"]


def test_a_span_of_no_length_begins_and_ends_inside_of_those_around_it() -> None:
    assert events_of([(10, 10), (10, 20)]) == ["+1", "+0", "-0", "-1"]


@given(intervals)
@settings(max_examples=200, deadline=None)
def test_spans_of_one_lane_never_cross(rows: list[Interval]) -> None:
    found = lanes_of(rows)
    for one, (start, end) in enumerate(rows):
        for other, (later_start, later_end) in enumerate(rows):
            crosses = start < later_start < end < later_end
            assert not crosses or found[one] != found[other]


def test_nested_and_consecutive_spans_share_the_first_lane() -> None:
    assert lanes_of([(0, 10), (2, 8), (10, 20)]) == [0, 0, 0]


def test_a_lane_is_used_again_once_it_is_free() -> None:
    assert lanes_of([(0, 10), (5, 15), (20, 30), (25, 35)]) == [0, 1, 0, 1]


def messages() -> Any:
    """Return Perfetto's own classes of messages."""
    return pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")


def layout_of(trace: Trace) -> TrackLayout:
    return lay_out(trace, np.ones(len(trace.spans), bool))


def tracks_of(layout: TrackLayout) -> dict[int, Any]:
    """Return the descriptors of tracks by their uuids."""
    parsed = messages().Trace()
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


MODEL, LAUNCH, KERNEL = range(3)


def launch_trace() -> Trace:
    writer = TraceWriter()
    run = writer.run("kernel")
    run.predict(0, 100)
    run.launch(10, 20, correlation=9)
    run.kernel("gemm", 50, 150, correlation=9)
    run.count("power", "W", [(0, 50.5), (5, 61.25)])
    return writer.build()


def test_an_arrow_leads_from_a_launch_to_its_kernel() -> None:
    trace = launch_trace()
    everything = np.ones(len(trace.spans), bool)
    flows = find_flows(trace.spans, parents_of(trace).index, everything)
    assert np.flatnonzero(flows.source).tolist() == [LAUNCH]
    assert np.flatnonzero(flows.target).tolist() == [KERNEL]


@pytest.mark.parametrize("missing", [LAUNCH, KERNEL])
def test_there_is_no_arrow_without_both_of_its_ends(missing: int) -> None:
    trace = launch_trace()
    mask = np.ones(len(trace.spans), bool)
    mask[missing] = False
    flows = find_flows(trace.spans, parents_of(trace).index, mask)
    assert not flows.source.any()
    assert not flows.target.any()


def test_events_of_more_than_one_chunk_have_the_same_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trace = launch_trace()
    chosen = np.arange(len(trace.spans))
    flows = find_flows(trace.spans, parents_of(trace).index, chosen >= 0)
    uuids = np.array([5, 5, 6])
    events = SpanEvents(trace.spans, uuids, flows)
    (whole,) = events.packets(chosen)
    monkeypatch.setattr("pytest_mlms.measure.trace.exporters.perfetto_events._CHUNK", 4)
    first, second = events.packets(chosen)
    times = []
    for encoded in (whole, first + second):
        parsed = messages().Trace()
        parsed.ParseFromString(encoded)
        times.append([packet.timestamp for packet in parsed.packet])
    assert times[0] == times[1] == [0, 10, 20, 50, 100, 150]


def test_a_counter_is_a_track_of_its_process_with_values() -> None:
    parsed = messages().Trace()
    parsed.ParseFromString(b"".join(counter_packets(launch_trace())))
    track, *values = parsed.packet
    assert track.track_descriptor.name == "power"
    assert track.track_descriptor.counter.unit_name == "W"
    assert track.track_descriptor.parent_uuid == 100
    events = [packet.track_event for packet in values]
    assert [event.double_counter_value for event in events] == [50.5, 61.25]
    assert {event.track_uuid for event in events} == {track.track_descriptor.uuid}
