"""Packets at the start of a Perfetto file: clocks, names and notes."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from pytest_mlms.measure.trace import LEVELS
from pytest_mlms.measure.trace.exporters.perfetto_fields import (
    Clock,
    ClockSnapshot,
    Interned,
    InternedData,
    PerfettoTrace,
    TracePacket,
    TracePacketDefaults,
    TrackDescriptor,
)
from pytest_mlms.measure.trace.protobuf import message

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
