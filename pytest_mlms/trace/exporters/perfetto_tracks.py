"""Tracks of a Perfetto file: processes, threads, streams, and lanes for spans that overlap."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pytest_mlms.trace.exporters.perfetto_order import lanes
from pytest_mlms.trace.exporters.perfetto_packets import descriptor_packet
from pytest_mlms.trace.protobuf import message
from pytest_mlms.trace.runs import TraceRun
from pytest_mlms.trace.spans import Trace, Track

__all__ = ["TrackLayout", "lay_out"]

Array = NDArray[Any]

_FIRST_TRACK = 1 << 20
_FIRST_LANE = 1 << 21


class TrackLayout(NamedTuple):
    """The packets that describe tracks, and the uuid of each span's track."""

    packets: list[bytes]
    uuids: Array


def lay_out(trace: Trace, mask: Array) -> TrackLayout:
    """Return the tracks of the spans of ``mask``."""
    spans = trace.spans
    packets = _process_packets(trace)
    uuids = np.zeros(len(spans), "i8")
    next_lane = _FIRST_LANE
    for number, (track, indices) in enumerate(_shared_tracks(trace).items()):
        on_track = np.flatnonzero(mask & np.isin(spans.track, indices))
        if not len(on_track):
            continue
        lane = lanes(spans.start[on_track], spans.end[on_track])
        lane_uuids = next_lane + np.arange(int(lane.max()) + 1)
        lane_uuids[0] = _FIRST_TRACK + number
        packets += _track_packets(track, lane_uuids.tolist())
        uuids[on_track] = lane_uuids[lane]
        next_lane += len(lane_uuids)
    return TrackLayout(packets, uuids)


def _shared_tracks(trace: Trace) -> dict[Track, list[int]]:
    """Return the tracks with their indices; a thread of several runs, as pytest's, is one track."""
    shared: dict[Track, list[int]] = {}
    for index, track in enumerate(trace.tracks):
        without_run = track._replace(run=0)
        shared.setdefault(without_run, []).append(index)
    return shared


def _process_packets(trace: Trace) -> list[bytes]:
    names: dict[int, str] = {}
    for track in trace.tracks:
        name = _process_name(trace.runs[track.run])
        names.setdefault(track.process, name)
    packets = []
    for process, name in names.items():
        descriptor = message((1, process), (6, name))
        packets.append(descriptor_packet(message((1, process), (3, descriptor))))
    return packets


def _process_name(run: TraceRun) -> str:
    if run.level.startswith("application"):
        return "pytest"
    return f"agent, {run.level} run"


def _track_packets(track: Track, uuids: list[int]) -> Iterator[bytes]:
    """Yield the packet of a track, whose uuid is the first, and those of its further lanes."""
    if track.kind == "thread":
        yield _thread_packet(uuids[0], track)
    else:
        yield _child_packet(uuids[0], track.process, track.name)
    for uuid in uuids[1:]:
        yield _child_packet(uuid, track.process, f"{track.name}, at the same time")


def _thread_packet(uuid: int, track: Track) -> bytes:
    thread = message((1, track.process), (2, track.thread), (5, track.name))
    descriptor = message((1, uuid), (5, track.process), (4, thread))
    return descriptor_packet(descriptor)


def _child_packet(uuid: int, process: int, name: str) -> bytes:
    return descriptor_packet(message((1, uuid), (5, process), (2, name)))
