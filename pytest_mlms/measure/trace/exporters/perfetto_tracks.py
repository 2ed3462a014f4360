"""Tracks of a Perfetto file: processes, threads, streams, and lanes for spans that overlap."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_mlms.measure.trace.exporters.perfetto_fields import (
    ProcessDescriptor,
    ThreadDescriptor,
    TrackDescriptor,
)
from pytest_mlms.measure.trace.exporters.perfetto_order import lanes
from pytest_mlms.measure.trace.exporters.perfetto_packets import descriptor_packet
from pytest_mlms.measure.trace.protobuf import message
from pytest_mlms.measure.trace.runs import TraceRun
from pytest_mlms.measure.trace.spans import Trace, Track

Array = NDArray[Any]

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
        name = _process_name(trace.runs[track.run])
        names.setdefault(track.process, name)
    return [_process_packet(process, name) for process, name in names.items()]


def _process_name(run: TraceRun) -> str:
    return "pytest" if _is_of_pytest(run) else f"agent, {run.level} run"


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
    """Yield the packet of a track, whose uuid is the first, and those of its further lanes."""
    uuid, *lane_uuids = uuids
    if track.kind == "thread":
        yield _thread_packet(uuid, track)
    else:
        yield _child_packet(uuid, track.process, track.name)
    for lane_uuid in lane_uuids:
        name = f"{track.name}, at the same time"
        yield _child_packet(lane_uuid, track.process, name)


def _thread_packet(uuid: int, track: Track) -> bytes:
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
    return descriptor_packet(descriptor)


def _child_packet(uuid: int, process: int, name: str) -> bytes:
    descriptor = message(
        (TrackDescriptor.UUID, uuid),
        (TrackDescriptor.PARENT_UUID, process),
        (TrackDescriptor.NAME, name),
    )
    return descriptor_packet(descriptor)
