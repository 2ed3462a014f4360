"""Tracks and events of a Perfetto file.

Tracks are processes, threads, streams, and lanes for spans that overlap. Events are begins and ends
of spans, in the order in which Perfetto nests them, arrows between them, and counter values.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pytest_mlms.core.arrays import Array
from pytest_mlms.measure.trace.exporters.perfetto_packets import (
    NEEDS_STATE,
    SEQUENCE,
    CounterDescriptor,
    MessageRows,
    PerfettoTrace,
    PlacedRows,
    ProcessDescriptor,
    ThreadDescriptor,
    TracePacket,
    TrackDescriptor,
    TrackEvent,
    descriptor_packet,
    interleave,
    message,
)
from pytest_mlms.measure.trace.records import TraceRun
from pytest_mlms.measure.trace.spans import Spans, Trace, Track

_ENDS = np.array(0, "i1")
_BEGINS = np.array(1, "i1")
_EMPTY = np.array(2, "i1")


@dataclass(frozen=True, eq=False)
class EventOrder:
    """The index of the span of each event, and whether the event is its begin."""

    span: Array
    begins: Array


def event_order(start: Array, end: Array) -> EventOrder:
    """Return the begins and ends of spans in the order in which they must follow.

    At the same time, ends of earlier spans come first, the innermost before the others. Begins
    follow, the outermost before the others. A span of no length begins and ends inside of those.
    """
    count = len(start)
    keys = _sort_keys(start, end)
    order = np.lexsort(keys)
    return EventOrder(span=order % count, begins=order < count)


def _sort_keys(start: Array, end: Array) -> list[Array]:
    """Return the keys of all begins and then of all ends, the most important last.

    Columns that are needed no longer are freed early: there may be a million events.
    """
    count = len(start)
    index = np.arange(count)
    empty = start == end
    is_end = np.zeros(2 * count, bool)
    is_end[count:] = True
    tie = _both(index, -index, empty, index)
    depth = _both(-end, -start, empty, index)
    group = _both(_BEGINS, _ENDS, empty, _EMPTY)
    time = np.concatenate([start, end])
    return [is_end, tie, depth, group, time]


def _both(begins: Array, ends: Array, empty: Array, of_empty: Array) -> Array:
    """Return a key of all events, which spans of no length have another value of."""
    of_begins = np.where(empty, of_empty, begins)
    of_ends = np.where(empty, of_empty, ends)
    return np.concatenate([of_begins, of_ends])


def lanes(start: Array, end: Array) -> Array:
    """Return a lane for each span, so that spans of one lane follow or contain each other.

    Lane 0 is the first choice.
    """
    lane = np.zeros(len(start), "i8")
    if _is_nested(start, end):
        return lane
    open_ends: list[list[int]] = []
    for index in np.lexsort((-end, start)).tolist():
        span_end = int(end[index])
        number = _free_lane(open_ends, int(start[index]), span_end)
        lane[index] = number
        open_ends[number].append(span_end)
    return lane


def _free_lane(open_ends: list[list[int]], start: int, end: int) -> int:
    """Return the first lane whose spans that are open at ``start`` end no earlier than ``end``."""
    for number, ends in enumerate(open_ends):
        while ends and ends[-1] <= start:
            ends.pop()
        if not ends or ends[-1] >= end:
            return number
    open_ends.append([])
    return len(open_ends) - 1


def _is_nested(start: Array, end: Array) -> bool:
    """Return whether no two spans cross: each end closes the last begin at its depth."""
    events = event_order(start, end)
    steps = np.where(events.begins, 1, -1)
    open_after = np.cumsum(steps)
    depth = open_after - events.begins
    order = np.argsort(depth, kind="stable")
    by_depth = events.span[order]
    begun = by_depth[0::2]
    ended = by_depth[1::2]
    return bool((begun == ended).all())


_FIRST_ID = 1 << 22  # above all process IDs of Linux, which are uuids of tracks, too
_FIRST_TRACK = 1 << 23
_FIRST_LANE = 1 << 24


@dataclass(frozen=True, eq=False)
class TrackLayout:
    """The packets that describe tracks, and the uuid of each span's track."""

    packets: list[bytes]
    uuids: Array


def lay_out(trace: Trace, mask: Array) -> TrackLayout:
    """Return the tracks of the spans of ``mask``."""
    spans = trace.spans
    layout = TrackLayout(_process_packets(trace), np.zeros(len(spans), "i8"))
    uuid = _FIRST_TRACK
    next_lane = _FIRST_LANE
    for track, indices in _shared_tracks(trace).items():
        on_track = np.isin(spans.track, indices)
        chosen = np.flatnonzero(mask & on_track)
        if len(chosen):
            lane = lanes(spans.start[chosen], spans.end[chosen])
            count = int(lane.max()) + 1
            uuids = np.arange(next_lane, next_lane + count)
            uuids[0] = uuid
            layout.packets.extend(_track_packets(track, uuids.tolist()))
            layout.uuids[chosen] = uuids[lane]
            next_lane += count
        uuid += 1
    return layout


def _shared_tracks(trace: Trace) -> dict[Track, list[int]]:
    """Return the tracks with their indices; a thread of several runs, as pytest's, is one track."""
    shared: dict[Track, list[int]] = {}
    for index, track in enumerate(own_tracks(trace)):
        without_run = track._replace(run=0)
        shared.setdefault(without_run, []).append(index)
    return shared


def own_tracks(trace: Trace) -> list[Track]:
    """Return the tracks, with other process IDs for agents that share one, as in containers.

    The agent of each run is another one.
    """
    runs: dict[int, set[int]] = {}
    for track in trace.tracks:
        if not _is_of_pytest(trace.runs[track.run]):
            runs.setdefault(track.process, set()).add(track.run)
    tracks = []
    for track in trace.tracks:
        is_shared = len(runs.get(track.process, ())) > 1
        is_other = is_shared and not _is_of_pytest(trace.runs[track.run])
        process = _FIRST_ID + track.run if is_other else track.process
        tracks.append(track._replace(process=process))
    return tracks


def _process_packets(trace: Trace) -> list[bytes]:
    names: dict[int, str] = {}
    for track in own_tracks(trace):
        run = trace.runs[track.run]
        name = "pytest" if _is_of_pytest(run) else f"agent, {run.level} run"
        names.setdefault(track.process, name)
    return [_process_packet(process, name) for process, name in names.items()]


def _is_of_pytest(run: TraceRun) -> bool:
    return run.level.startswith("application")


def _process_packet(process: int, name: str) -> bytes:
    """Return the packet of a process, whose uuid is its process ID."""
    descriptor = message(
        (ProcessDescriptor.PID, process),
        (ProcessDescriptor.PROCESS_NAME, name),
    )
    track = message(
        (TrackDescriptor.UUID, process),
        (TrackDescriptor.PROCESS, descriptor),
    )
    return descriptor_packet(track)


def _track_packets(track: Track, uuids: list[int]) -> Iterator[bytes]:
    """Yield the packet of a track, whose uuid is the first, and a packet of each further lane."""
    uuid, *lane_uuids = uuids
    if track.kind == "thread":
        thread = message(
            (ThreadDescriptor.PID, track.process),
            (ThreadDescriptor.TID, track.thread),
            (ThreadDescriptor.THREAD_NAME, track.name),
        )
        descriptor = message(
            (TrackDescriptor.UUID, uuid),
            (TrackDescriptor.PARENT_UUID, track.process),
            (TrackDescriptor.THREAD, thread),
        )
        yield descriptor_packet(descriptor)
    else:
        yield _child_packet(uuid, track.process, track.name)
    for lane_uuid in lane_uuids:
        name = f"{track.name}, at the same time"
        yield _child_packet(lane_uuid, track.process, name)


def _child_packet(uuid: int, process: int, name: str) -> bytes:
    descriptor = message(
        (TrackDescriptor.UUID, uuid),
        (TrackDescriptor.PARENT_UUID, process),
        (TrackDescriptor.NAME, name),
    )
    return descriptor_packet(descriptor)


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

    ``uuids`` has the track of each span.
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
            run = self.spans.run[span] + 1
            correlation = self.spans.correlation[span].astype("u8")
            shifted_run = run.astype("u8") << _RUN_SHIFT
            flow_ids = np.asarray(shifted_run | correlation)
            event.fixed64(flow_field, flow_ids)
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


def counter_packets(trace: Trace) -> Iterator[bytes]:
    """Yield the track of each counter and its values."""
    processes = {track.run: track.process for track in own_tracks(trace)}
    counters = trace.counters
    for index, series in enumerate(trace.series):
        uuid = _FIRST_COUNTER + index
        process = processes.get(series.run)
        counter = message((CounterDescriptor.UNIT_NAME, series.unit))
        descriptor = message(
            (TrackDescriptor.UUID, uuid),
            (TrackDescriptor.NAME, series.name),
            (TrackDescriptor.COUNTER, counter),
        )
        if process is not None:
            descriptor += message((TrackDescriptor.PARENT_UUID, process))
        yield descriptor_packet(descriptor)
        chosen = np.flatnonzero(counters.series == index)
        yield from _counter_values(uuid, counters.time[chosen], counters.value[chosen])


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
