"""Messages of a Perfetto file, and the packets at its start: clocks, names and notes.

The encoding is that of https://protobuf.dev/programming-guides/encoding. In a column all messages
are equally long, so that they are rows of one array: each varint is padded with continuation bits
to the width of the largest, which readers accept. The numbers of fields are those of
https://github.com/google/perfetto/blob/main/protos/perfetto/trace/perfetto_trace.proto.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from pytest_mlms.core.arrays import Array
from pytest_mlms.measure.trace import LEVELS

_VARINT = 0
_FIXED64 = 1
_BYTES = 2


def varint(value: int) -> bytes:
    """Return a non-negative integer as a varint: seven bits per byte, the lowest first."""
    encoded = bytearray()
    while value > 0x7F:
        low_bits = value & 0x7F
        encoded.append(low_bits | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def message(*fields: tuple[int, float | str | bytes]) -> bytes:
    """Return a message of pairs of a field number and a value.

    An integer becomes a varint and a float a double; text and bytes have their length before them.
    """
    encoded = bytearray()
    for number, value in fields:
        encoded += _field(number, value)
    return bytes(encoded)


def _field(number: int, value: float | str | bytes) -> bytes:
    if isinstance(value, int):
        return _tag(number, _VARINT) + varint(value)
    if isinstance(value, float):
        return _tag(number, _FIXED64) + struct.pack("<d", value)
    if isinstance(value, str):
        value = value.encode()
    head = _tag(number, _BYTES) + varint(len(value))
    return head + value


def _tag(number: int, wire_type: int) -> bytes:
    return varint(number << 3 | wire_type)


class MessageRows:
    """Messages with the same fields and of the same length, one per row.

    Fields are constants, or columns of varints and of 8-byte values.
    """

    def __init__(self, count: int) -> None:
        self.width = 0  # bytes of a row
        self._count = count
        self._parts: list[Array] = []

    def constant(self, *fields: tuple[int, int | str | bytes]) -> None:
        """Add fields with the same value in all rows."""
        self._add_bytes(message(*fields))

    def varints(self, number: int, values: Array) -> None:
        """Add a field of non-negative integers."""
        largest = int(values.max(initial=0))
        width = len(varint(largest))
        shifts = 7 * np.arange(width, dtype="u8")
        column = values.astype("u8")[:, None]
        shifted = column >> shifts
        encoded = shifted.astype("u1") & 0x7F
        encoded[:, :-1] |= 0x80
        self._add_bytes(_tag(number, _VARINT))
        self._add(encoded)

    def fixed64(self, number: int, values: Array) -> None:
        """Add a field of 8-byte values: of type u8 as fixed64, of type f8 as double."""
        little_endian = values.dtype.newbyteorder("<")
        column = values.astype(little_endian)[:, None]
        self._add_bytes(_tag(number, _FIXED64))
        self._add(column.view("u1"))

    def nest(self, number: int, inner: MessageRows) -> None:
        """Add a field that is the message of the same row of ``inner``."""
        self._add_bytes(_tag(number, _BYTES))
        self._add_bytes(varint(inner.width))
        for part in inner._parts:
            self._add(part)

    def matrix(self) -> Array:
        """Return the messages as an array of bytes with one row for each."""
        rows = np.empty((self._count, self.width), "u1")
        first = 0
        for part in self._parts:
            last = first + part.shape[-1]
            rows[:, first:last] = part
            first = last
        return rows

    def _add_bytes(self, constant: bytes) -> None:
        self._add(np.frombuffer(constant, "u1"))

    def _add(self, part: Array) -> None:
        self._parts.append(part)
        self.width += part.shape[-1]


@dataclass(frozen=True, eq=False)
class PlacedRows:
    """Rows of equal length, and the position of each among all rows."""

    matrix: Array
    positions: Array

    @property
    def width(self) -> int:
        """Bytes of a row."""
        return int(self.matrix.shape[1])


def interleave(groups: Sequence[PlacedRows], total: int) -> bytes:
    """Return the rows of all groups in the order of their positions, which are 0 to total - 1."""
    lengths = np.zeros(total, "i8")
    for group in groups:
        lengths[group.positions] = group.width
    ends = np.cumsum(lengths)
    starts = ends - lengths
    size = int(lengths.sum())
    joined = np.empty(size, "u1")
    for group in groups:
        first = starts[group.positions]
        offsets = np.arange(group.width)
        places = first[:, None] + offsets
        joined[places] = group.matrix
    return joined.tobytes()


class PerfettoTrace:
    """The whole file."""

    PACKET = 1


class TracePacket:
    """A part of the file."""

    CLOCK_SNAPSHOT = 6
    TIMESTAMP = 8
    TRUSTED_SEQUENCE_ID = 10
    TRACK_EVENT = 11
    INTERNED_DATA = 12
    SEQUENCE_FLAGS = 13
    DEFAULTS = 59
    TRACK_DESCRIPTOR = 60


class TracePacketDefaults:
    """Values of all packets."""

    TIMESTAMP_CLOCK_ID = 58


class ClockSnapshot:
    """Clocks that were read together."""

    CLOCKS = 1
    PRIMARY_TRACE_CLOCK = 2


class Clock:
    """One of the clocks, and its time."""

    CLOCK_ID = 1
    TIMESTAMP = 2


class InternedData:
    """Strings that events name by a number."""

    EVENT_CATEGORIES = 1
    EVENT_NAMES = 2


class Interned:
    """One of these strings."""

    IID = 1
    NAME = 2


class TrackDescriptor:
    """A track of events."""

    UUID = 1
    NAME = 2
    PROCESS = 3
    THREAD = 4
    PARENT_UUID = 5
    COUNTER = 8


class ProcessDescriptor:
    """The process of a track."""

    PID = 1
    PROCESS_NAME = 6


class ThreadDescriptor:
    """The thread of a track."""

    PID = 1
    TID = 2
    THREAD_NAME = 5


class CounterDescriptor:
    """The counter of a track."""

    UNIT_NAME = 6


class TrackEvent:
    """An event on a track."""

    CATEGORY_IIDS = 3
    TYPE = 9
    NAME_IID = 10
    TRACK_UUID = 11
    DOUBLE_COUNTER_VALUE = 44
    FLOW_IDS = 47
    TERMINATING_FLOW_IDS = 48


SEQUENCE = 1
"""The trusted_packet_sequence_id of all packets."""

NEEDS_STATE = 2
"""The sequence_flags of a packet that needs the first packets."""

_CLEARS_STATE = 1  # sequence_flags of the first packets
_NOTE_TRACK = 1  # uuid

_REALTIME = 1  # BuiltinClock
_MONOTONIC = 3
_BOOTTIME = 6


def first_packets(strings: Sequence[str]) -> bytes:
    """Return the packets that all later ones need.

    These are the clocks read together, the clock of all timestamps, and the numbers of the names
    and of the levels. Perfetto numbers from 1.
    """
    defaults = message((TracePacketDefaults.TIMESTAMP_CLOCK_ID, _MONOTONIC))
    clocks = _packet(
        NEEDS_STATE,
        (TracePacket.CLOCK_SNAPSHOT, _clock_snapshot()),
    )
    state = _packet(
        _CLEARS_STATE,
        (TracePacket.DEFAULTS, defaults),
        (TracePacket.INTERNED_DATA, _interned_data(strings)),
    )
    return clocks + state


def note_packet(note: str) -> bytes:
    """Return a packet that shows a note as the name of a track."""
    name = f"pytest-mlms: {note}"
    descriptor = message(
        (TrackDescriptor.UUID, _NOTE_TRACK),
        (TrackDescriptor.NAME, name),
    )
    return descriptor_packet(descriptor)


def descriptor_packet(descriptor: bytes) -> bytes:
    """Return a packet with a TrackDescriptor."""
    return _packet(NEEDS_STATE, (TracePacket.TRACK_DESCRIPTOR, descriptor))


def _packet(sequence_flags: int, *fields: tuple[int, bytes]) -> bytes:
    packet = message(
        (TracePacket.TRUSTED_SEQUENCE_ID, SEQUENCE),
        (TracePacket.SEQUENCE_FLAGS, sequence_flags),
        *fields,
    )
    return message((PerfettoTrace.PACKET, packet))


def _clock_snapshot() -> bytes:
    now = {
        _MONOTONIC: time.monotonic_ns(),
        _REALTIME: time.time_ns(),
        _BOOTTIME: _boottime(),
    }
    fields = b""
    for clock_id, nanoseconds in now.items():
        clock = message(
            (Clock.CLOCK_ID, clock_id),
            (Clock.TIMESTAMP, nanoseconds),
        )
        fields += message((ClockSnapshot.CLOCKS, clock))
    return fields + message((ClockSnapshot.PRIMARY_TRACE_CLOCK, _MONOTONIC))


def _boottime() -> int:
    clock = getattr(time, "CLOCK_BOOTTIME", None)  # only Linux has it
    if clock is None:
        return time.monotonic_ns()
    return time.clock_gettime_ns(clock)


def _interned_data(strings: Sequence[str]) -> bytes:
    names = [text or "-" for text in strings]
    encoded_names = _interned(InternedData.EVENT_NAMES, names)
    encoded_levels = _interned(InternedData.EVENT_CATEGORIES, LEVELS)
    return encoded_names + encoded_levels


def _interned(field: int, texts: Iterable[str]) -> bytes:
    fields = []
    for number, text in enumerate(texts, start=1):
        entry = message(
            (Interned.IID, number),
            (Interned.NAME, text),
        )
        fields.append(message((field, entry)))
    return b"".join(fields)
