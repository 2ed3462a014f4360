"""Protocol buffers, and packets of a Perfetto file."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_mlms.measure.trace import LEVELS
from pytest_mlms.measure.trace.exporters.perfetto_packets import (
    MessageRows,
    PlacedRows,
    first_packets,
    interleave,
    message,
    note_packet,
    varint,
)


def decoded(encoded: bytes) -> int:
    """Return the number of a varint, padded or not."""
    value = 0
    for place, byte in enumerate(encoded):
        value |= (byte & 0x7F) << 7 * place
    return value


@given(st.integers(0, 2**63 - 1))
def test_a_varint_has_seven_bits_per_byte_and_ends_at_the_first_without_the_eighth(
    value: int,
) -> None:
    encoded = varint(value)
    assert decoded(encoded) == value
    *earlier, last = encoded
    assert all(byte & 0x80 for byte in earlier)
    assert not last & 0x80


def test_the_documentation_of_the_encoding_has_these_examples() -> None:
    number = message((1, 150))
    text = message((2, "testing"))
    assert varint(150) == b"\x96\x01"
    assert number == b"\x08\x96\x01"
    assert text == b"\x12\x07testing"


def test_a_float_is_a_double() -> None:
    eight_bytes = struct.pack("<d", 1.5)
    assert message((1, 1.5)) == b"\x09" + eight_bytes


def test_a_message_inside_of_a_message_has_its_length_before_it() -> None:
    inner = message((1, 150))
    outer = message((3, inner))
    assert outer == b"\x1a\x03" + inner


@given(st.lists(st.integers(0, 2**62), min_size=1, max_size=20))
def test_a_column_of_varints_is_padded_to_the_width_of_the_largest(values: list[int]) -> None:
    rows = MessageRows(len(values))
    rows.varints(1, np.array(values))
    matrix = rows.matrix()
    largest = varint(max(values))
    assert rows.width == 1 + len(largest)
    for row, value in zip(matrix, values, strict=True):
        assert decoded(row[1:].tobytes()) == value


def test_a_row_is_the_message_of_its_fields() -> None:
    inner = MessageRows(2)
    inner.varints(1, np.array([5, 6]))
    inner.fixed64(2, np.array([1.5, 2.5]))
    rows = MessageRows(2)
    rows.constant((3, 7))
    rows.nest(4, inner)
    first, second = rows.matrix()
    first_inner = message((1, 5), (2, 1.5))
    second_inner = message((1, 6), (2, 2.5))
    assert first.tobytes() == message((3, 7), (4, first_inner))
    assert second.tobytes() == message((3, 7), (4, second_inner))
    assert rows.width == len(first)


def test_no_rows_are_an_empty_matrix() -> None:
    rows = MessageRows(0)
    rows.varints(1, np.zeros(0, "i8"))
    assert rows.matrix().size == 0


def test_rows_of_several_widths_are_interleaved_by_position() -> None:
    one_byte = np.array([[1], [2]], "u1")
    two_bytes = np.array([[8, 9]], "u1")
    narrow = PlacedRows(one_byte, positions=np.array([0, 2]))
    wide = PlacedRows(two_bytes, positions=np.array([1]))
    assert interleave([narrow, wide], 3) == bytes([1, 8, 9, 2])


def messages() -> Any:
    """Return Perfetto's own classes of messages."""
    return pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")


MONOTONIC = 3
BOOTTIME = 6


def parse(encoded: bytes) -> list[Any]:
    parsed = messages().Trace()
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
