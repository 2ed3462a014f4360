"""Packets at the start of a Perfetto file: clocks, names and notes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

from pytest_mlms.trace import LEVELS
from pytest_mlms.trace.protobuf import message

__all__ = ["NEEDS_STATE", "SEQUENCE", "descriptor_packet", "first_packets", "note_packet"]

SEQUENCE = 1
"""The trusted_packet_sequence_id of all packets."""

NEEDS_STATE = 2
"""The sequence_flags of a packet that needs the first packets."""

_CLEARS_STATE = 1  # sequence_flags of the first packets

_REALTIME = 1  # BuiltinClock
_MONOTONIC = 3
_BOOTTIME = 6


class _Clock(NamedTuple):
    """A clock, and its time in nanoseconds."""

    number: int
    now: int


def first_packets(strings: Sequence[str]) -> bytes:
    """Return the packets that all later ones need.

    These are the clocks read together, the clock of all timestamps, and the numbers of the names and
    of the levels. Perfetto numbers from 1.
    """
    defaults = message((58, _MONOTONIC))
    clocks = _packet((6, _clock_snapshot()))
    interned = _packet((59, defaults), (12, _interned_data(strings)), flags=_CLEARS_STATE)
    return clocks + interned


def note_packet(note: str) -> bytes:
    """Return a packet that shows a note as the name of a track."""
    return descriptor_packet(message((1, 1), (2, f"pytest-mlms: {note}")))


def descriptor_packet(descriptor: bytes) -> bytes:
    """Return a packet with a TrackDescriptor."""
    return _packet((60, descriptor))


def _packet(*fields: tuple[int, int | bytes], flags: int = NEEDS_STATE) -> bytes:
    packet = message((10, SEQUENCE), (13, flags), *fields)
    return message((1, packet))


def _clock_snapshot() -> bytes:
    clocks = [
        _Clock(_MONOTONIC, time.monotonic_ns()),
        _Clock(_REALTIME, time.time_ns()),
        _Clock(_BOOTTIME, _boottime()),
    ]
    snapshot = b""
    for clock in clocks:
        snapshot += message((1, message((1, clock.number), (2, clock.now))))
    return snapshot + message((2, _MONOTONIC))


def _boottime() -> int:
    clock = getattr(time, "CLOCK_BOOTTIME", None)  # only Linux has it
    if clock is None:
        return time.monotonic_ns()
    return time.clock_gettime_ns(clock)


def _interned_data(strings: Sequence[str]) -> bytes:
    fields = []
    for number, text in enumerate(strings, start=1):
        fields.append((2, message((1, number), (2, text or "-"))))
    for number, level in enumerate(LEVELS, start=1):
        fields.append((1, message((1, number), (2, level))))
    return message(*fields)
