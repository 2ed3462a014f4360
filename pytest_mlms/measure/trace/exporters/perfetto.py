"""Perfetto files, which https://ui.perfetto.dev and its trace processor open.

Each run is a process with a track for each thread. Streams of a device, and spans that overlap on a
thread, have tracks of their own. Arrows lead from a launch to the kernel that it started. The
numbers of fields are those of
https://github.com/google/perfetto/blob/main/protos/perfetto/trace/perfetto_trace.proto.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from pytest_mlms.core.arrays import Array
from pytest_mlms.core.files import replacing
from pytest_mlms.measure.trace.correlate import parents_of
from pytest_mlms.measure.trace.exporters.perfetto_events import (
    SpanEvents,
    counter_packets,
    find_flows,
    lay_out,
)
from pytest_mlms.measure.trace.exporters.perfetto_packets import first_packets, note_packet
from pytest_mlms.measure.trace.spans import Spans, Trace

SUFFIX = ".pftrace"
DESCRIPTION = "Perfetto's protocol buffers"

MOST_BYTES = 256 << 20
"""The most bytes of a file: what a browser still opens."""

_SPAN_BYTES = 75  # of a begin and an end, with room


class WrittenTrace(NamedTuple):
    """Size of a file in bytes, number of requests, and how many were left out to limit the size."""

    size: int
    requests: int
    dropped: int


class ChosenRequests(NamedTuple):
    """A mask of the spans to write, number of requests, and how many of them are left out."""

    mask: Array
    requests: int
    dropped: int


def export(trace: Trace, path: Path, name: str) -> int:
    """Write the file atomically; return the number of spans."""
    write_perfetto(trace, parents_of(trace).index, path)
    return len(trace.spans)


def write_perfetto(
    trace: Trace, parent: Array, path: Path, most_bytes: int = MOST_BYTES
) -> WrittenTrace:
    """Write the file atomically; ``parent`` is the index of each span's parent."""
    chosen = limit_requests(trace.spans, most_bytes)
    with replacing(path) as temporary, temporary.open("wb") as file:
        file.write(first_packets(trace.strings))
        if chosen.dropped:
            left_out = f"{chosen.dropped} of {chosen.requests} requests left out"
            file.write(note_packet(f"{left_out}, to stay below {most_bytes} bytes"))
        mask = chosen.mask
        layout = lay_out(trace, mask)
        flows = find_flows(trace.spans, parent, mask)
        events = SpanEvents(trace.spans, layout.uuids, flows)
        file.writelines(layout.packets)
        file.writelines(events.packets(np.flatnonzero(mask)))
        file.writelines(counter_packets(trace))
        size = file.tell()
    return WrittenTrace(size, chosen.requests, chosen.dropped)


def limit_requests(spans: Spans, most_bytes: int) -> ChosenRequests:
    """Return which spans fit into ``most_bytes``.

    Whole requests are left out, the last of each run first, in equal share of every run. Spans
    outside of any request are always written.
    """
    inside = spans.request >= 0
    runs = spans.run[inside].astype("i8")
    keys = runs << 32 | spans.request[inside]
    requests, place = np.unique(keys, return_inverse=True)
    place = place.reshape(-1)
    sizes = np.bincount(place, minlength=len(requests))
    outside = len(spans) - len(keys)
    room = most_bytes // _SPAN_BYTES - outside
    numbers = requests & 0xFFFFFFFF
    order = np.lexsort((requests >> 32, numbers))
    fits = np.cumsum(sizes[order]) <= room
    kept = np.zeros(len(requests), bool)
    kept[order[fits]] = True
    mask = np.ones(len(spans), bool)
    mask[inside] = kept[place]
    dropped = np.count_nonzero(~kept)
    return ChosenRequests(mask, len(requests), int(dropped))
