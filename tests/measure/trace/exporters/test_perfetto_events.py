"""Events of a Perfetto file."""

from __future__ import annotations

import numpy as np
import pytest

from pytest_mlms.measure.trace.correlate import parents_of
from pytest_mlms.measure.trace.exporters.perfetto_events import (
    SpanEvents,
    counter_packets,
    find_flows,
)
from pytest_mlms.measure.trace.spans import Trace
from tests.support.traces import TraceWriter

pb2 = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")

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
        parsed = pb2.Trace()
        parsed.ParseFromString(encoded)
        times.append([packet.timestamp for packet in parsed.packet])
    assert times[0] == times[1] == [0, 10, 20, 50, 100, 150]


def test_a_counter_is_a_track_of_its_process_with_values() -> None:
    parsed = pb2.Trace()
    parsed.ParseFromString(b"".join(counter_packets(launch_trace())))
    track, *values = parsed.packet
    assert track.track_descriptor.name == "power"
    assert track.track_descriptor.counter.unit_name == "W"
    assert track.track_descriptor.parent_uuid == 100
    events = [packet.track_event for packet in values]
    assert [event.double_counter_value for event in events] == [50.5, 61.25]
    assert {event.track_uuid for event in events} == {track.track_descriptor.uuid}
