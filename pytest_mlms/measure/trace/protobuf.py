"""A writer of protocol buffers: single messages, and columns of like messages by numpy.

The encoding is that of https://protobuf.dev/programming-guides/encoding. In a column all messages
are equally long, so that they are rows of one array: each varint is padded with continuation bits
to the width of the largest, which readers accept.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

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
