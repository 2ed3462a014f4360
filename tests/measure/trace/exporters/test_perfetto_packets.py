"""The first packets of a Perfetto file, read back by Perfetto's own definitions."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_mlms.measure.trace import LEVELS
from pytest_mlms.measure.trace.exporters.perfetto_packets import first_packets, note_packet

pb2 = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")

MONOTONIC = 3
BOOTTIME = 6


def parse(encoded: bytes) -> list[Any]:
    parsed = pb2.Trace()
    parsed.ParseFromString(encoded)
    return list(parsed.packet)


def test_clocks_are_read_together_and_timestamps_are_monotonic() -> None:
    clocks, state = parse(first_packets([]))
    ids = [clock.clock_id for clock in clocks.clock_snapshot.clocks]
    assert sorted(ids) == [1, MONOTONIC, BOOTTIME]
    assert clocks.clock_snapshot.primary_trace_clock == MONOTONIC
    assert state.trace_packet_defaults.timestamp_clock_id == MONOTONIC


def test_names_and_levels_are_numbered_from_one() -> None:
    _, state = parse(first_packets(["", "conv"]))
    names = {entry.iid: entry.name for entry in state.interned_data.event_names}
    levels = {entry.iid: entry.name for entry in state.interned_data.event_categories}
    assert names == {1: "-", 2: "conv"}
    assert levels == dict(enumerate(LEVELS, start=1))


def test_a_note_is_the_name_of_a_track() -> None:
    (packet,) = parse(note_packet("2 requests left out"))
    assert packet.track_descriptor.name == "pytest-mlms: 2 requests left out"
