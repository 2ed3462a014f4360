"""Protocol-buffer bytes: of single messages, and of a column of like messages at once by numpy.

The encoding is https://protobuf.dev/programming-guides/encoding. In rows, a varint is padded with
continuation bits to the width of the column's largest, which every reader takes, and which lets
rows be cut from one array.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Rows", "interleave", "message", "varint"]

Array = NDArray[Any]

_VARINT, _FIXED64, _BYTES = 0, 1, 2


def varint(value: int) -> bytes:
    """Return a whole number that isn't negative, seven bits a byte, the lowest first."""
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])


def message(*fields: tuple[int, int | float | str | bytes]) -> bytes:
    """Return a message of (field number, value).

    Int as varint, float as double, text and bytes with their length.
    """
    return b"".join(_field(number, value) for number, value in fields)


def _field(number: int, value: float | str | bytes) -> bytes:
    if isinstance(value, int):
        return varint(number << 3 | _VARINT) + varint(value)
    if isinstance(value, float):
        return varint(number << 3 | _FIXED64) + struct.pack("<d", value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | _BYTES) + varint(len(data)) + data


class Rows:
    """Like messages, one a row: constant parts, and columns of varints and of 8-byte values.

    All rows as wide.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._parts: list[bytes | Array] = []

    @property
    def width(self) -> int:
        """Bytes of a row."""
        return sum(len(part) if isinstance(part, bytes) else part.shape[1] for part in self._parts)

    def constant(self, *fields: tuple[int, int | str | bytes]) -> Rows:
        """Add fields that are the same in all rows."""
        self._parts.append(message(*fields))
        return self

    def varints(self, number: int, values: Array) -> Rows:
        """Add a field of whole numbers that aren't negative."""
        width = max(1, -(-int(values.max(initial=0)).bit_length() // 7))
        shifts = 7 * np.arange(width, dtype="u8")
        digits = (values.astype("u8")[:, None] >> shifts).astype("u1") & 0x7F
        digits[:, :-1] |= 0x80
        self._parts += [varint(number << 3 | _VARINT), digits]
        return self

    def fixed64(self, number: int, values: Array) -> Rows:
        """Add a field of 8-byte values: u8 for fixed64, f8 for double."""
        self._parts += [
            varint(number << 3 | _FIXED64),
            values.astype(values.dtype.newbyteorder("<"))[:, None].view("u1"),
        ]
        return self

    def nest(self, number: int, inner: Rows) -> Rows:
        """Add a field that is a message of ``inner``'s row."""
        self._parts += [varint(number << 3 | _BYTES) + varint(inner.width), *inner._parts]
        return self

    def matrix(self) -> Array:
        """Return the rows as bytes, count x width."""
        out, column = np.empty((self._count, self.width), "u1"), 0
        for part in self._parts:
            width = len(part) if isinstance(part, bytes) else part.shape[1]
            out[:, column : column + width] = (
                np.frombuffer(part, "u1") if isinstance(part, bytes) else part
            )
            column += width
        return out


def interleave(matrices: Sequence[Array], positions: Sequence[Array], total: int) -> bytes:
    """Return rows of several matrices one after another, in the order (0 to ``total`` - 1) of their
    ``positions``.
    """
    lengths = np.zeros(total, "i8")
    for matrix, position in zip(matrices, positions, strict=True):
        lengths[position] = matrix.shape[1]
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    out = np.empty(int(offsets[-1]), "u1")
    for matrix, position in zip(matrices, positions, strict=True):
        out[offsets[position][:, None] + np.arange(matrix.shape[1])] = matrix
    return out.tobytes()
