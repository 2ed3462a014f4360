"""Events of a Perfetto file: begins and ends of spans, arrows between them, and counter values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_mlms.trace.exporters.perfetto_order import event_order
from pytest_mlms.trace.exporters.perfetto_packets import NEEDS_STATE, SEQUENCE, descriptor_packet
from pytest_mlms.trace.protobuf import MessageRows, PlacedRows, interleave, message
from pytest_mlms.trace.spans import Spans, Trace

__all__ = ["Flows", "SpanEvents", "counter_packets", "find_flows"]

Array = NDArray[Any]

_BEGIN = 1  # TrackEvent.Type
_END = 2
_COUNTER = 4
_FLOW_IDS = 47
_TERMINATING_FLOW_IDS = 48
_NO_FLOW = 0
_FIRST_COUNTER = 1 << 22  # uuid; threads and lanes have smaller ones
_CHUNK = 1 << 16  # events that are encoded at once


@dataclass(frozen=True, eq=False)
class Flows:
    """Masks of the spans at which arrows begin (launches) and end (what they started)."""

    source: Array
    target: Array


def find_flows(spans: Spans, parent: Array, mask: Array) -> Flows:
    """Return the arrows between the spans of ``mask``: from launches to kernels on other tracks."""
    candidates = np.flatnonzero(mask & (parent >= 0) & (spans.correlation != 0))
    launches = parent[candidates]
    elsewhere = spans.track[launches] != spans.track[candidates]
    drawn = elsewhere & mask[launches]
    source = np.zeros(len(spans), bool)
    target = np.zeros(len(spans), bool)
    source[launches[drawn]] = True
    target[candidates[drawn]] = True
    return Flows(source, target)


class SpanEvents:
    """Encodes the begins and ends of spans as TracePackets.

    ``uuids`` are those of the tracks of all spans.
    """

    def __init__(self, spans: Spans, uuids: Array, flows: Flows) -> None:
        self._spans = spans
        self._uuids = uuids
        self._flows = flows

    def packets(self, chosen: Array) -> Iterator[bytes]:
        """Yield the events of the chosen spans in their order, a chunk at a time."""
        order = event_order(self._spans.start[chosen], self._spans.end[chosen])
        span = chosen[order.span]
        for first in range(0, len(span), _CHUNK):
            chunk = slice(first, first + _CHUNK)
            yield self._encode(span[chunk], order.begins[chunk])

    def _encode(self, span: Array, begins: Array) -> bytes:
        source = begins & self._flows.source[span]
        target = begins & self._flows.target[span] & ~source
        plain = begins & ~source & ~target
        rows = [
            self._place_begins(span, plain, _NO_FLOW),
            self._place_begins(span, source, _FLOW_IDS),
            self._place_begins(span, target, _TERMINATING_FLOW_IDS),
            self._place_ends(span, ~begins),
        ]
        return interleave(rows, len(span))

    def _place_begins(self, span: Array, chosen: Array, flow_field: int) -> PlacedRows:
        positions = np.flatnonzero(chosen)
        span = span[positions]
        event = MessageRows(len(span)).constant((9, _BEGIN)).varints(11, self._uuids[span])
        event.varints(10, self._spans.name[span] + 1)
        event.varints(3, self._spans.level[span] + 1)
        if flow_field != _NO_FLOW:
            event.fixed64(flow_field, self._flow_ids(span))
        packets = _timed_packets(self._spans.start[span], event)
        return PlacedRows(packets, positions)

    def _place_ends(self, span: Array, chosen: Array) -> PlacedRows:
        positions = np.flatnonzero(chosen)
        span = span[positions]
        event = MessageRows(len(span)).constant((9, _END)).varints(11, self._uuids[span])
        packets = _timed_packets(self._spans.end[span], event)
        return PlacedRows(packets, positions)

    def _flow_ids(self, span: Array) -> Array:
        """Return an ID for each run and correlation ID."""
        runs = (self._spans.run[span] + 1).astype("u8")
        correlations = self._spans.correlation[span].astype("u8")
        return np.asarray(runs << np.uint64(40) | correlations)


def counter_packets(trace: Trace) -> Iterator[bytes]:
    """Yield the track of each counter and its values."""
    processes = {track.run: track.process for track in trace.tracks}
    counters = trace.counters
    for index, series in enumerate(trace.series):
        uuid = _FIRST_COUNTER + index
        descriptor = message((1, uuid))
        if series.run in processes:
            descriptor += message((5, processes[series.run]))
        unit = message((6, series.unit))
        descriptor += message((2, series.name), (8, unit))
        yield descriptor_packet(descriptor)
        chosen = np.flatnonzero(counters.series == index)
        yield from _counter_values(uuid, counters.time[chosen], counters.value[chosen])


def _counter_values(uuid: int, time: Array, value: Array) -> Iterator[bytes]:
    for first in range(0, len(time), _CHUNK):
        chunk = slice(first, first + _CHUNK)
        times = time[chunk]
        event = MessageRows(len(times)).constant((9, _COUNTER), (11, uuid))
        event.fixed64(44, value[chunk])
        yield _timed_packets(times, event).tobytes()


def _timed_packets(time: Array, event: MessageRows) -> Array:
    """Return TracePackets with a timestamp and a TrackEvent each."""
    packet = MessageRows(len(time)).constant((10, SEQUENCE), (13, NEEDS_STATE))
    packet.varints(8, time)
    packet.nest(11, event)
    return MessageRows(len(time)).nest(1, packet).matrix()
