"""What is written is what Perfetto's own definitions read back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_mlms.trace.builder import TraceBuilder
from pytest_mlms.trace.correlate import find_parents
from pytest_mlms.trace.exporters.perfetto import limit_requests, write_perfetto
from pytest_mlms.trace.exporters.perfetto_order import lanes
from pytest_mlms.trace.protobuf import MessageRows, message, varint
from pytest_mlms.trace.runs import TraceRun
from pytest_mlms.trace.spans import CounterSeries, Spans, Trace, Track

pb2 = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")


def written(trace: Trace, path: Path, **limits: int) -> list[Any]:
    """Write a trace; return its packets, parsed by Perfetto's own classes."""
    write_perfetto(trace, find_parents(trace.spans, trace.devices).index, path, **limits)
    parsed = pb2.Trace()
    parsed.ParseFromString(path.read_bytes())
    return list(parsed.packet)


def slices(packets: list[Any]) -> Iterator[tuple[int, str, int, int, int]]:
    """Replay begins and ends as Perfetto does: yield track, name, start, end, depth."""
    names = {
        entry.iid: entry.name for packet in packets for entry in packet.interned_data.event_names
    }
    stacks: dict[int, list[tuple[str, int]]] = {}
    events = [packet for packet in packets if packet.track_event.type in (1, 2)]
    for packet in sorted(
        events, key=lambda packet: packet.timestamp
    ):  # stable, as Perfetto's sorter is
        event, stack = packet.track_event, stacks.setdefault(packet.track_event.track_uuid, [])
        if event.type == 1:
            stack.append((names[event.name_iid], packet.timestamp))
        else:
            name, start = stack.pop()
            yield event.track_uuid, name, start, packet.timestamp, len(stack)
    assert not any(stacks.values())


def launch() -> Trace:
    builder = TraceBuilder()
    builder.add_run(TraceRun("kernel"))
    thread = builder.track(Track(0, 77, 78, "main", "thread"))
    stream = builder.track(Track(0, 77, 7, "stream 7", "stream"))
    at = 10**15
    builder.add(
        level=1,
        name=builder.text("predict"),
        start=[at],
        end=[at + 90],
        track=thread,
        run=0,
        request=0,
    )
    builder.add(
        level=2,
        name=builder.text("conv1"),
        start=[at],
        end=[at + 60],
        track=thread,
        run=0,
        request=0,
    )
    call = {
        "name": builder.text("cudaLaunchKernel"),
        "track": thread,
        "correlation": 9,
        "run": 0,
        "request": 0,
    }
    builder.add(level=3, start=[at + 5], end=[at + 9], **call)
    kernel = {
        "name": builder.text("sgemm"),
        "track": stream,
        "correlation": 9,
        "run": 0,
        "request": 0,
    }
    builder.add(level=4, start=[at + 70], end=[at + 95], **kernel)
    builder.count(CounterSeries("power", "W", 0), np.array([at, at + 50]), np.array([50.5, 61.25]))
    return builder.build()


def test_slices_come_back_with_names_times_and_depths(tmp_path: Path) -> None:
    found = {row[1]: row[2:] for row in slices(written(launch(), tmp_path / "t.pftrace"))}
    at = 10**15
    assert found == {
        "predict": (at, at + 90, 0),
        "conv1": (at, at + 60, 1),
        "cudaLaunchKernel": (at + 5, at + 9, 2),
        "sgemm": (at + 70, at + 95, 0),
    }


def test_a_thread_that_two_runs_share_is_one_track(tmp_path: Path) -> None:
    builder = TraceBuilder()
    for run, level in enumerate(("application", "application+hardware")):
        builder.add_run(TraceRun(level))
        track = builder.track(Track(run, 77, 78, "pytest", "thread"))
        builder.add(
            level=0,
            name=builder.text(level),
            start=[run * 10],
            end=[run * 10 + 5],
            track=track,
            run=run,
        )
    found = list(slices(written(builder.build(), tmp_path / "t.pftrace")))
    assert [row[1] for row in found] == ["application", "application+hardware"]
    assert found[0][0] == found[1][0]


def test_an_arrow_goes_from_the_launch_to_the_kernel(tmp_path: Path) -> None:
    packets = written(launch(), tmp_path / "t.pftrace")
    begins = [
        list(packet.track_event.flow_ids) for packet in packets if packet.track_event.flow_ids
    ]
    ends = [
        list(packet.track_event.terminating_flow_ids)
        for packet in packets
        if packet.track_event.terminating_flow_ids
    ]
    assert begins == ends
    assert len(begins) == 1


def test_tracks_counters_and_clocks_are_described(tmp_path: Path) -> None:
    packets = written(launch(), tmp_path / "t.pftrace")
    described = [
        packet.track_descriptor for packet in packets if packet.HasField("track_descriptor")
    ]
    assert {one.process.process_name for one in described} >= {"agent, kernel run"}
    assert {one.thread.tid for one in described if one.HasField("thread")} == {78}
    (counter,) = [one for one in described if one.HasField("counter")]
    assert (counter.name, counter.counter.unit_name) == ("power", "W")
    values = [
        packet.track_event.double_counter_value
        for packet in packets
        if packet.track_event.type == 4
    ]
    assert values == [50.5, 61.25]
    (clocks,) = [packet.clock_snapshot for packet in packets if packet.HasField("clock_snapshot")]
    assert {clock.clock_id for clock in clocks.clocks} == {1, 3, 6}
    assert clocks.primary_trace_clock == 3


def test_this_side_is_a_process_of_its_own_name(tmp_path: Path) -> None:
    builder = TraceBuilder()
    builder.add_run(TraceRun("application"))
    track = builder.track(Track(0, 9, 9, "pytest", "thread"))
    builder.add(
        level=0, name=builder.text("decode"), start=[5], end=[6], track=track, run=0, request=0
    )
    packets = written(builder.build(), tmp_path / "t.pftrace")
    assert "pytest" in {packet.track_descriptor.process.process_name for packet in packets}


pairs = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 15)), min_size=1, max_size=30)


def trace_of(rows: list[tuple[int, int]], **columns: Any) -> Trace:
    builder = TraceBuilder()
    builder.add_run(TraceRun("layer"))
    track = builder.track(Track(0, 5, 5, "main", "thread"))
    start = np.array([first for first, _ in rows]) + 1000
    end = start + [length for _, length in rows]
    builder.add(
        level=2,
        name=builder.texts(map(str, range(len(rows)))),
        start=start,
        end=end,
        track=track,
        run=0,
        **columns,
    )
    return builder.build()


@given(pairs)
@settings(max_examples=200, deadline=None)
def test_whatever_overlaps_comes_back_as_it_was(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[int, int]]
) -> None:
    packets = written(trace_of(rows), tmp_path_factory.mktemp("trace") / "t.pftrace")
    found = sorted(
        (int(name), start - 1000, end - start) for _, name, start, end, _ in slices(packets)
    )
    assert found == [(index, start, length) for index, (start, length) in enumerate(rows)]


@given(pairs)
@settings(max_examples=200, deadline=None)
def test_spans_of_one_lane_never_cross(rows: list[tuple[int, int]]) -> None:
    start = np.array([first for first, _ in rows])
    end = start + [length for _, length in rows]
    lane = lanes(start, end)
    for one in range(len(rows)):
        for other in range(len(rows)):
            crosses = start[one] < start[other] < end[one] < end[other]
            assert not (crosses and lane[one] == lane[other])


def test_a_limit_drops_whole_requests_and_the_trace_says_so(tmp_path: Path) -> None:
    trace = trace_of(
        [(index, 1) for index in range(0, 3000, 3)], request=np.repeat(np.arange(10), 100)
    )
    packets = written(trace, tmp_path / "t.pftrace", most_bytes=30_000)
    kept = {int(row[1]) // 100 for row in slices(packets)}
    assert sum(1 for _ in slices(packets)) == 100 * len(kept)
    assert 0 < len(kept) < 10
    notes = [
        packet.track_descriptor.name
        for packet in packets
        if "left out" in packet.track_descriptor.name
    ]
    assert notes == [
        f"pytest-mlms: {10 - len(kept)} of 10 requests left out, to stay below 30000 bytes"
    ]
    assert (tmp_path / "t.pftrace").stat().st_size <= 30_000


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(-1, 5)), max_size=60), st.integers(0, 5000)
)
def test_no_request_is_ever_cut(rows: list[tuple[int, int]], most: int) -> None:
    count = len(rows)
    run, request = [row[0] for row in rows], [row[1] for row in rows]
    spans = Spans.of(
        level=2,
        name=0,
        start=np.arange(count),
        end=np.arange(count) + 1,
        track=0,
        run=run,
        request=request,
    )
    mask, requests, dropped = limit_requests(spans, most)
    groups: dict[tuple[int, int], set[bool]] = {}
    for key, kept in zip(rows, mask.tolist(), strict=True):
        groups.setdefault(key, set()).add(kept)
    assert all(len(kept) == 1 for kept in groups.values())
    whole = [key for key in groups if key[1] >= 0]
    assert (requests, dropped) == (len(whole), sum(groups[key] == {False} for key in whole))
    assert all(kept == {True} for key, kept in groups.items() if key[1] < 0)


def test_an_empty_trace_is_a_file_too(tmp_path: Path) -> None:
    assert written(TraceBuilder().build(), tmp_path / "t.pftrace")


@given(st.integers(0, 2**63 - 1))
def test_a_varint_is_as_the_encoding_says(value: int) -> None:
    encoded = varint(value)
    assert sum((byte & 0x7F) << 7 * place for place, byte in enumerate(encoded)) == value
    assert [byte >> 7 for byte in encoded] == [1] * (len(encoded) - 1) + [0]


@given(st.lists(st.integers(0, 2**62), min_size=1, max_size=20))
def test_rows_of_padded_varints_are_read_as_the_numbers(values: list[int]) -> None:
    matrix = (
        MessageRows(len(values))
        .nest(1, MessageRows(len(values)).varints(8, np.array(values)))
        .matrix()
    )
    parsed = pb2.Trace()
    parsed.ParseFromString(matrix.tobytes())
    assert [packet.timestamp for packet in parsed.packet] == values
    assert message((8, values[0])) == bytes([8 << 3]) + varint(values[0])
