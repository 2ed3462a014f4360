"""A trace as Perfetto's protocol buffers: opens in https://ui.perfetto.dev and in its trace
processor.

A process for each run with a track for each thread, tracks of their own for a device's streams and
for what overlaps on a thread, counters, and arrows from a launch to what it started. Fields are
those of https://github.com/google/perfetto/blob/main/protos/perfetto/trace/perfetto_trace.proto.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pytest_mlms.trace import LEVELS
from pytest_mlms.trace.protobuf import Rows, interleave, message
from pytest_mlms.trace.spans import Spans, Trace, Track

__all__ = ["MOST_BYTES", "Written", "lanes", "limit_requests", "write_perfetto"]

Array = NDArray[Any]

MOST_BYTES = 256 << 20
"""Of a file: what a browser still opens."""

_SEQUENCE = 1  # trusted_packet_sequence_id
_MONOTONIC, _REALTIME, _BOOTTIME = 3, 1, 6  # BuiltinClock
_BEGIN, _END, _COUNTER = 1, 2, 4  # TrackEvent.Type
_SPAN_BYTES = 75  # of a begin and an end, with room
_CHUNK = 1 << 16  # rows encoded at once
_THREADS, _LANES, _COUNTERS = (
    1 << 20,
    1 << 21,
    1 << 22,
)  # where the uuids of each sort of track begin


class Written(NamedTuple):
    """What became of a trace.

    Bytes, and how many of its requests were left out to stay under the limit.
    """

    size: int
    requests: int
    dropped: int


def limit_requests(spans: Spans, most_bytes: int) -> tuple[Array, int, int]:
    """Return a mask of the spans that fit, the number of requests and of those left out.

    Whole requests are left out, the last of each run first, in equal share of every run; what
    belongs to no request stays.
    """
    inside = spans.request >= 0
    keys = spans.run[inside].astype("i8") << 32 | spans.request[inside]
    requests, place = np.unique(keys, return_inverse=True)
    room = most_bytes // _SPAN_BYTES - int((~inside).sum())
    sizes = np.bincount(place.reshape(-1), minlength=len(requests))
    order = np.lexsort((requests >> 32, requests & 0xFFFFFFFF))
    kept = np.zeros(len(requests), bool)
    kept[order[np.cumsum(sizes[order]) <= room]] = True
    mask = np.ones(len(spans), bool)
    mask[inside] = kept[place.reshape(-1)]
    return mask, len(requests), int((~kept).sum())


def write_perfetto(
    trace: Trace, parent: Array, path: Path, most_bytes: int = MOST_BYTES
) -> Written:
    """Write the file, whole or not at all; ``parent`` is find_parents' index."""
    mask, requests, dropped = limit_requests(trace.spans, most_bytes)
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with temporary.open("wb") as file:
            _write(
                file,
                trace,
                parent,
                mask,
                f"{dropped} of {requests} requests left out, to stay below {most_bytes} bytes",
            )
            size = file.tell()
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    return Written(size, requests, dropped)


def _write(file: IO[bytes], trace: Trace, parent: Array, mask: Array, note: str) -> None:
    spans = trace.spans
    file.write(_head(trace, note if not mask.all() else ""))
    layout = _lay_out(trace, mask)
    for descriptor in layout.descriptors:
        file.write(_packet((60, descriptor)))
    for block in _slices(spans, parent, mask, layout.track):
        file.write(block)
    for block in _readings(trace):
        file.write(block)


def _packet(*fields: tuple[int, int | bytes], flags: int = 2) -> bytes:
    """Return a TracePacket of the trace.

    Flag 2: it needs what the first one set up, 1: it is the first.
    """
    return message((1, message((10, _SEQUENCE), (13, flags), *fields)))


def _head(trace: Trace, note: str) -> bytes:
    """The clocks read together, the clock of all that follows, the names and levels as numbers, and
    the note.
    """
    clocks = (
        (_MONOTONIC, time.monotonic_ns()),
        (_REALTIME, time.time_ns()),
        (_BOOTTIME, _boottime()),
    )
    snapshot = b"".join(message((1, message((1, number), (2, now)))) for number, now in clocks)
    snapshot += message((2, _MONOTONIC))
    names = [
        (2, message((1, index), (2, text or "-")))
        for index, text in enumerate(trace.strings, start=1)
    ]
    categories = [
        (1, message((1, index), (2, level))) for index, level in enumerate(LEVELS, start=1)
    ]
    defaults = message((58, _MONOTONIC))
    head = _packet((6, snapshot)) + _packet(
        (59, defaults), (12, message(*names, *categories)), flags=1
    )
    if note:
        head += _packet((60, message((1, 1), (2, f"pytest-mlms: {note}"))))
    return head


def _boottime() -> int:
    clock = getattr(time, "CLOCK_BOOTTIME", None)  # Linux only
    return time.monotonic_ns() if clock is None else time.clock_gettime_ns(clock)


@dataclass(frozen=True, eq=False)
class _Layout:
    """The TrackDescriptors, and the uuid of each span's track."""

    descriptors: list[bytes]
    track: Array


def _lay_out(trace: Trace, mask: Array) -> _Layout:
    descriptors = list(_processes(trace))
    uuids, next_lane = np.zeros(len(trace.spans), "i8"), _LANES
    for index, (track, same) in enumerate(_places(trace).items()):
        mine = np.flatnonzero(np.isin(trace.spans.track, same) & mask)
        if not len(mine):
            continue
        uuid = _THREADS + index
        descriptors.append(
            _thread(uuid, track)
            if track.kind == "thread"
            else _child(uuid, track.process, track.name)
        )
        lane = lanes(trace.spans.start[mine], trace.spans.end[mine])
        for number in range(1, int(lane.max()) + 1):
            descriptors.append(
                _child(next_lane + number, track.process, f"{track.name}, at the same time")
            )
        uuids[mine] = np.where(lane == 0, uuid, next_lane + lane)
        next_lane += int(lane.max()) + 1
    return _Layout(descriptors, uuids)


def _places(trace: Trace) -> dict[Track, list[int]]:
    """Return the tracks with their indices: a thread that two runs share, as pytest's, is one."""
    places: dict[Track, list[int]] = {}
    for index, track in enumerate(trace.tracks):
        places.setdefault(track._replace(run=0), []).append(index)
    return places


def _processes(trace: Trace) -> Iterator[bytes]:
    named: dict[int, str] = {}
    for track in trace.tracks:
        level = trace.runs[track.run]["level"]
        named.setdefault(
            track.process, "pytest" if level.startswith("application") else f"agent, {level} run"
        )
    for process, name in named.items():
        yield message((1, process), (3, message((1, process), (6, name))))


def _thread(uuid: int, track: Any) -> bytes:
    thread = message((1, track.process), (2, track.thread), (5, track.name))
    return message((1, uuid), (5, track.process), (4, thread))


def _child(uuid: int, process: int, name: str) -> bytes:
    return message((1, uuid), (5, process), (2, name))


def _slices(spans: Spans, parent: Array, mask: Array, track: Array) -> Iterator[bytes]:
    """Yield the packets of all begins and ends in their order, some at a time."""
    chosen = np.flatnonzero(mask)
    source, target = _flows(spans, parent, mask)
    span, begins = _events(spans.start[chosen], spans.end[chosen])
    span = chosen[span]
    for first in range(0, len(span), _CHUNK):
        some, starts = span[first : first + _CHUNK], begins[first : first + _CHUNK]
        yield _encode(spans, some, starts, track, source, target)


def _encode(
    spans: Spans, span: Array, begins: Array, track: Array, source: Array, target: Array
) -> bytes:
    kinds = [
        (begins & ~source[span] & ~target[span], 0),
        (begins & source[span], 47),  # flow_ids
        (begins & target[span] & ~source[span], 48),  # terminating_flow_ids
        (~begins, -1),
    ]
    matrices, positions = [], []
    for which, flow in kinds:
        position = np.flatnonzero(which)
        if len(position):
            matrices.append(_rows(spans, span[position], track, flow))
            positions.append(position)
    return interleave(matrices, positions, len(span))


def _rows(spans: Spans, span: Array, track: Array, flow: int) -> Array:
    """Return TracePackets of begins (with a flow if it isn't 0) or, where ``flow`` is -1, of ends."""
    ends = flow < 0
    event = Rows(len(span)).constant((9, _END if ends else _BEGIN)).varints(11, track[span])
    if not ends:
        event.varints(10, spans.name[span] + 1).varints(3, spans.level[span] + 1)
    if flow > 0:
        event.fixed64(flow, _flow_id(spans, span))
    packet = Rows(len(span)).constant((10, _SEQUENCE), (13, 2))
    packet.varints(8, (spans.end if ends else spans.start)[span]).nest(11, event)
    return Rows(len(span)).nest(1, packet).matrix()


def _flows(spans: Spans, parent: Array, mask: Array) -> tuple[Array, Array]:
    """Return which spans begin an arrow (launches) and which end one (what they started,
    elsewhere).
    """
    target = (parent >= 0) & (spans.correlation != 0) & mask
    target[target] &= (spans.track[parent[target]] != spans.track[target]) & mask[parent[target]]
    source = np.zeros(len(spans), bool)
    source[parent[target]] = True
    return source, target


def _flow_id(spans: Spans, span: Array) -> Array:
    return np.asarray(
        (spans.run[span] + 1).astype("u8") << np.uint64(40) | spans.correlation[span].astype("u8")
    )


def _events(start: Array, end: Array) -> tuple[Array, Array]:
    """Return spans' begins and ends as they must follow: the span's index, and whether it begins.

    At the same time: ends of what began before, the innermost first; then begins, the outermost
    first; and a span of no length begins and ends inside of those.
    """
    count = len(start)
    span = np.concatenate([np.arange(count), np.arange(count)])
    begins = np.arange(2 * count) < count
    at = np.concatenate([start, end])
    empty = np.concatenate([start == end, start == end])
    group = np.where(empty, 2, np.where(begins, 1, 0))
    near = np.where(
        empty, span, np.where(begins, -np.concatenate([end, end]), -np.concatenate([start, start]))
    )
    tie = np.where(begins | empty, span, -span)
    order = np.lexsort((~begins, tie, near, group, at))
    return span[order], begins[order]


def lanes(start: Array, end: Array) -> Array:
    """Return a lane for each span, such that those of one lane lie one after or inside of another;
    most are 0.
    """
    if _nests(start, end):
        return np.zeros(len(start), "i8")
    lane, stacks = np.zeros(len(start), "i8"), list[list[int]]()
    for index in np.lexsort((-end, start)).tolist():
        lane[index] = _free_lane(stacks, int(start[index]), int(end[index]))
        stacks[lane[index]].append(int(end[index]))
    return lane


def _free_lane(stacks: list[list[int]], start: int, end: int) -> int:
    """Return the first lane where all that is still open at ``start`` ends no earlier than ``end``."""
    for number, stack in enumerate(stacks):
        while stack and stack[-1] <= start:
            stack.pop()
        if not stack or stack[-1] >= end:
            return number
    stacks.append([])
    return len(stacks) - 1


def _nests(start: Array, end: Array) -> bool:
    """Whether no two intervals cross: each end then closes what began last at its depth."""
    span, begins = _events(start, end)
    depth = np.cumsum(np.where(begins, 1, -1)) - begins
    order = np.argsort(depth, kind="stable")
    return bool((span[order][0::2] == span[order][1::2]).all())


def _readings(trace: Trace) -> Iterator[bytes]:
    """Yield the counters' descriptors and values."""
    process = {track.run: track.process for track in trace.tracks}
    for index, series in enumerate(trace.series):
        mine = trace.counters.series == index
        counter = message((6, series.unit))
        fields: list[tuple[int, int | str | bytes]] = [
            (1, _COUNTERS + index),
            (2, series.name),
            (8, counter),
        ]
        if series.run in process:
            fields.insert(1, (5, process[series.run]))
        yield _packet((60, message(*fields)))
        times, values = trace.counters.time[mine], trace.counters.value[mine]
        for first in range(0, len(times), _CHUNK):
            part = slice(first, first + _CHUNK)
            event = (
                Rows(len(times[part]))
                .constant((9, _COUNTER), (11, _COUNTERS + index))
                .fixed64(44, values[part])
            )
            packet = (
                Rows(len(times[part]))
                .constant((10, _SEQUENCE), (13, 2))
                .varints(8, times[part])
                .nest(11, event)
            )
            yield Rows(len(times[part])).nest(1, packet).matrix().tobytes()
