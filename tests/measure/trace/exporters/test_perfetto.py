"""Perfetto files, read back by Perfetto's own protocol definitions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_mlms.measure.trace.correlate import parents_of
from pytest_mlms.measure.trace.exporters import perfetto
from pytest_mlms.measure.trace.exporters.perfetto import limit_requests, write_perfetto
from pytest_mlms.measure.trace.spans import Spans, Trace
from tests.support.traces import TraceWriter

pb2 = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")

START = 10**15
BEGIN = 1
END = 2

pairs = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 15)), min_size=1, max_size=30)


class Slice(NamedTuple):
    """A span as Perfetto shows it."""

    track: int
    name: str
    start: int
    end: int
    depth: int


def packets_of(trace: Trace, path: Path, **limits: int) -> list[Any]:
    """Write a trace; return its packets."""
    write_perfetto(trace, parents_of(trace).index, path, **limits)
    parsed = pb2.Trace()
    parsed.ParseFromString(path.read_bytes())
    return list(parsed.packet)


def slices_of(packets: list[Any]) -> Iterator[Slice]:
    """Yield the spans as Perfetto finds them: it sorts the events by time, and keeps a stack."""
    names = {}
    for packet in packets:
        for entry in packet.interned_data.event_names:
            names[entry.iid] = entry.name
    stacks: dict[int, list[tuple[str, int]]] = {}
    events = [packet for packet in packets if packet.track_event.type in (BEGIN, END)]
    for packet in sorted(events, key=lambda packet: packet.timestamp):
        track = packet.track_event.track_uuid
        stack = stacks.setdefault(track, [])
        if packet.track_event.type == BEGIN:
            stack.append((names[packet.track_event.name_iid], packet.timestamp))
        else:
            name, start = stack.pop()
            yield Slice(track, name, start, packet.timestamp, len(stack))
    assert not any(stacks.values())


def descriptors_of(packets: list[Any]) -> list[Any]:
    return [packet.track_descriptor for packet in packets if packet.HasField("track_descriptor")]


def launch() -> Trace:
    """A call with a layer, whose kernel runs on the device, and the power meanwhile."""
    writer = TraceWriter()
    run = writer.run("kernel")
    run.predict(START, START + 90)
    run.layer("conv1", START, START + 60)
    run.launch(START + 5, START + 9, correlation=9)
    run.kernel("sgemm", START + 70, START + 95, correlation=9)
    run.count("power", "W", [(START, 50.5), (START + 50, 61.25)])
    return writer.build()


def layers_trace(rows: list[tuple[int, int]]) -> Trace:
    """Layers named by their number, with a start and a length each."""
    writer = TraceWriter()
    run = writer.run("layer")
    for number, (start, length) in enumerate(rows):
        run.layer(str(number), 1000 + start, 1000 + start + length)
    return writer.build()


def requests_trace(requests: int, layers: int) -> Trace:
    """Requests of consecutive layers, named by the request."""
    writer = TraceWriter()
    run = writer.run("layer")
    for request in range(requests):
        run.request = request
        for layer in range(layers):
            start = 3 * (request * layers + layer)
            run.layer(str(request), start, start + 1)
    return writer.build()


def test_spans_have_names_times_and_depths(tmp_path: Path) -> None:
    packets = packets_of(launch(), tmp_path / "t.pftrace")
    found = {span.name: span[2:] for span in slices_of(packets)}
    assert found == {
        "predict": (START, START + 90, 0),
        "conv1": (START, START + 60, 1),
        "launch": (START + 5, START + 9, 2),
        "sgemm": (START + 70, START + 95, 0),
    }


def test_a_run_is_a_process_with_its_threads(tmp_path: Path) -> None:
    tracks = descriptors_of(packets_of(launch(), tmp_path / "t.pftrace"))
    assert "agent, kernel run" in {track.process.process_name for track in tracks}
    threads = [track.thread for track in tracks if track.HasField("thread")]
    assert [(thread.tid, thread.thread_name) for thread in threads] == [(1, "main")]


def test_requests_of_this_side_are_the_process_of_pytest(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.run("application").span("application", "decode", 5, 6)
    tracks = descriptors_of(packets_of(writer.build(), tmp_path / "t.pftrace"))
    assert "pytest" in {track.process.process_name for track in tracks}


def test_a_thread_of_two_runs_is_one_track(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.run("application").span("application", "first", 0, 5)
    second = writer.run("application+hardware")
    shared = writer.build().tracks[0]._replace(run=1)
    track = writer.builder.track(shared)
    second.span("application", "second", 10, 15, track=track)
    found = list(slices_of(packets_of(writer.build(), tmp_path / "t.pftrace")))
    assert [span.name for span in found] == ["first", "second"]
    assert found[0].track == found[1].track


@given(pairs)
@settings(max_examples=200, deadline=None)
def test_spans_that_overlap_come_back_as_they_were(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[int, int]]
) -> None:
    path = tmp_path_factory.mktemp("trace") / "t.pftrace"
    found = {}
    for span in slices_of(packets_of(layers_trace(rows), path)):
        found[int(span.name)] = (span.start - 1000, span.end - span.start)
    assert found == dict(enumerate(rows))


def test_a_limit_leaves_out_whole_requests_and_the_file_says_so(tmp_path: Path) -> None:
    path = tmp_path / "t.pftrace"
    packets = packets_of(requests_trace(10, 100), path, most_bytes=30_000)
    spans = list(slices_of(packets))
    kept = {span.name for span in spans}
    assert 0 < len(kept) < 10
    assert len(spans) == 100 * len(kept)
    names = [track.name for track in descriptors_of(packets)]
    (note,) = [name for name in names if "left out" in name]
    dropped = 10 - len(kept)
    assert note == (f"pytest-mlms: {dropped} of 10 requests left out, to stay below 30000 bytes")
    assert path.stat().st_size <= 30_000


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(-1, 5)), max_size=60), st.integers(0, 5000)
)
def test_a_request_is_kept_whole_or_left_out_whole(
    rows: list[tuple[int, int]], most_bytes: int
) -> None:
    start = np.arange(len(rows))
    runs = [run for run, _ in rows]
    requests = [request for _, request in rows]
    spans = Spans.of(
        level=2, name=0, start=start, end=start + 1, track=0, run=runs, request=requests
    )
    chosen = limit_requests(spans, most_bytes)
    kept: dict[tuple[int, int], set[bool]] = {}
    for row, is_kept in zip(rows, chosen.mask.tolist(), strict=True):
        kept.setdefault(row, set()).add(is_kept)
    assert all(len(values) == 1 for values in kept.values())
    inside = [row for row in kept if row[1] >= 0]
    assert chosen.requests == len(inside)
    assert chosen.dropped == sum(kept[row] == {False} for row in inside)
    assert all(kept[row] == {True} for row in kept if row[1] < 0)


def test_an_empty_trace_is_a_file_too(tmp_path: Path) -> None:
    assert packets_of(TraceWriter().build(), tmp_path / "t.pftrace")


def test_the_export_returns_the_number_of_spans(tmp_path: Path) -> None:
    path = tmp_path / "t.pftrace"
    assert perfetto.export(launch(), path, "item") == 4
    assert path.is_file()
