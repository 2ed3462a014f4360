"""Events of a Perfetto file: begins and ends of spans, arrows between them, and counter values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_mlms.measure.trace.exporters.perfetto_fields import (
    CounterDescriptor,
    PerfettoTrace,
    TracePacket,
    TrackDescriptor,
    TrackEvent,
)
from pytest_mlms.measure.trace.exporters.perfetto_order import event_order
from pytest_mlms.measure.trace.exporters.perfetto_packets import (
    NEEDS_STATE,
    SEQUENCE,
    descriptor_packet,
)
from pytest_mlms.measure.trace.exporters.perfetto_tracks import own_tracks
from pytest_mlms.measure.trace.protobuf import MessageRows, PlacedRows, interleave, message
from pytest_mlms.measure.trace.spans import CounterSeries, Spans, Trace

Array = NDArray[Any]

_BEGIN = 1  # TrackEvent.Type
_END = 2
_COUNTER = 4
_NO_FLOW = 0
_RUN_SHIFT = np.uint64(40)  # of a flow ID: correlation IDs are smaller
_FIRST_COUNTER = 1 << 26  # uuid; threads and lanes have smaller ones
_CHUNK = 1 << 16  # events that are encoded at once


@dataclass(frozen=True, eq=False)
class Flows:
    """Masks of the spans at which arrows begin (launches) and end (what they started)."""

    source: Array
    target: Array


def find_flows(spans: Spans, parent: Array, mask: Array) -> Flows:
    """Return the arrows between the spans of ``mask``: from launches to kernels on other tracks."""
    has_launch = (parent >= 0) & (spans.correlation != 0)
    started = np.flatnonzero(mask & has_launch)
    launches = parent[started]
    on_other_track = spans.track[launches] != spans.track[started]
    drawn = on_other_track & mask[launches]
    source = np.zeros(len(spans), bool)
    target = np.zeros(len(spans), bool)
    source[launches[drawn]] = True
    target[started[drawn]] = True
    return Flows(source, target)


@dataclass(frozen=True, eq=False)
class SpanEvents:
    """Encodes the begins and ends of spans as TracePackets.

    ``uuids`` are those of the tracks of all spans.
    """

    spans: Spans
    uuids: Array
    flows: Flows

    def packets(self, chosen: Array) -> Iterator[bytes]:
        """Yield the events of the chosen spans in their order, a chunk at a time."""
        start = self.spans.start[chosen]
        end = self.spans.end[chosen]
        order = event_order(start, end)
        span = chosen[order.span]
        for first in range(0, len(span), _CHUNK):
            chunk = slice(first, first + _CHUNK)
            yield self._encode(span[chunk], order.begins[chunk])

    def _encode(self, span: Array, begins: Array) -> bytes:
        is_source = self.flows.source[span]
        is_target = self.flows.target[span]
        source = begins & is_source
        target = begins & is_target & ~is_source
        plain = begins & ~is_source & ~is_target
        rows = [
            self._begins(span, plain, _NO_FLOW),
            self._begins(span, source, TrackEvent.FLOW_IDS),
            self._begins(span, target, TrackEvent.TERMINATING_FLOW_IDS),
            self._ends(span, ~begins),
        ]
        return interleave(rows, len(span))

    def _begins(self, span: Array, chosen: Array, flow_field: int) -> PlacedRows:
        positions = np.flatnonzero(chosen)
        span = span[positions]
        event = self._event(span, _BEGIN)
        event.varints(TrackEvent.NAME_IID, self.spans.name[span] + 1)
        event.varints(TrackEvent.CATEGORY_IIDS, self.spans.level[span] + 1)
        if flow_field != _NO_FLOW:
            event.fixed64(flow_field, self._flow_ids(span))
        packets = _timed_packets(self.spans.start[span], event)
        return PlacedRows(packets, positions)

    def _ends(self, span: Array, chosen: Array) -> PlacedRows:
        positions = np.flatnonzero(chosen)
        span = span[positions]
        event = self._event(span, _END)
        packets = _timed_packets(self.spans.end[span], event)
        return PlacedRows(packets, positions)

    def _event(self, span: Array, kind: int) -> MessageRows:
        event = MessageRows(len(span))
        event.constant((TrackEvent.TYPE, kind))
        event.varints(TrackEvent.TRACK_UUID, self.uuids[span])
        return event

    def _flow_ids(self, span: Array) -> Array:
        """Return an ID for each run and correlation ID."""
        run = self.spans.run[span] + 1
        correlation = self.spans.correlation[span].astype("u8")
        shifted_run = run.astype("u8") << _RUN_SHIFT
        return np.asarray(shifted_run | correlation)


def counter_packets(trace: Trace) -> Iterator[bytes]:
    """Yield the track of each counter and its values."""
    processes = {track.run: track.process for track in own_tracks(trace)}
    counters = trace.counters
    for index, series in enumerate(trace.series):
        uuid = _FIRST_COUNTER + index
        process = processes.get(series.run)
        yield _counter_track(uuid, series, process)
        chosen = np.flatnonzero(counters.series == index)
        yield from _counter_values(uuid, counters.time[chosen], counters.value[chosen])


def _counter_track(uuid: int, series: CounterSeries, process: int | None) -> bytes:
    counter = message((CounterDescriptor.UNIT_NAME, series.unit))
    descriptor = message(
        (TrackDescriptor.UUID, uuid),
        (TrackDescriptor.NAME, series.name),
        (TrackDescriptor.COUNTER, counter),
    )
    if process is not None:
        descriptor += message((TrackDescriptor.PARENT_UUID, process))
    return descriptor_packet(descriptor)


def _counter_values(uuid: int, time: Array, value: Array) -> Iterator[bytes]:
    for first in range(0, len(time), _CHUNK):
        chunk = slice(first, first + _CHUNK)
        times = time[chunk]
        event = MessageRows(len(times))
        event.constant(
            (TrackEvent.TYPE, _COUNTER),
            (TrackEvent.TRACK_UUID, uuid),
        )
        event.fixed64(TrackEvent.DOUBLE_COUNTER_VALUE, value[chunk])
        yield _timed_packets(times, event).tobytes()


def _timed_packets(time: Array, event: MessageRows) -> Array:
    """Return TracePackets with a timestamp and a TrackEvent each."""
    packet = MessageRows(len(time))
    packet.constant(
        (TracePacket.TRUSTED_SEQUENCE_ID, SEQUENCE),
        (TracePacket.SEQUENCE_FLAGS, NEEDS_STATE),
    )
    packet.varints(TracePacket.TIMESTAMP, time)
    packet.nest(TracePacket.TRACK_EVENT, event)
    rows = MessageRows(len(time))
    rows.nest(PerfettoTrace.PACKET, packet)
    return rows.matrix()
