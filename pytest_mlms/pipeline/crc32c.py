"""CRC-32C, the checksum of TensorFlow's records, in numpy.

The polynomial is Castagnoli's, https://www.rfc-editor.org/rfc/rfc3720#appendix-B.4. A checksum is
linear: those of many pieces are computed side by side, and then joined in pairs.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["crc32c", "masked_crc32c"]

Register = NDArray[Any]

_POLYNOMIAL = 0x82F63B78  # reversed
_ONES = 0xFFFFFFFF
_INVERTED = 4  # bytes
_PIECE = 64  # bytes
_MASK = 0xA282EAD8


def masked_crc32c(data: bytes) -> int:
    """Return the checksum as TensorFlow's records have it.

    https://github.com/tensorflow/tensorflow, tensorflow/core/lib/hash/crc32c.h
    """
    crc = crc32c(data)
    return (((crc >> 15) | (crc << 17)) + _MASK) & _ONES


def crc32c(data: bytes) -> int:
    """Return the checksum of ``data``."""
    table = _table()
    if len(data) < _INVERTED:
        register = np.array([_ONES], np.uint32)
        for byte in data:
            register = table[(register ^ byte) & 0xFF] ^ (register >> 8)
        return int(register[0]) ^ _ONES
    length = _PIECE
    register = np.zeros(_pieces(len(data)), np.uint32)
    for column in _columns(data, len(register)):
        register = table[(register ^ column) & 0xFF] ^ (register >> 8)
    while len(register) > 1:
        register = _apply(_zeros(length), register[0::2]) ^ register[1::2]
        length *= 2
    return int(register[0]) ^ _ONES


def _pieces(size: int) -> int:
    """Return the number of pieces, a power of two, that so many bytes fit into."""
    count = -(-size // _PIECE)
    return 1 << (count - 1).bit_length()


def _columns(data: bytes, pieces: int) -> Any:
    """Return the bytes of the pieces, the first of each first.

    Zeros in front change nothing in a register of zeros. Inverting the first four bytes of data is
    the same as to begin with a register of ones.
    """
    padded = np.zeros(pieces * _PIECE, np.uint8)
    begin = len(padded) - len(data)
    padded[begin:] = np.frombuffer(data, np.uint8)
    padded[begin : begin + _INVERTED] ^= 0xFF
    return np.ascontiguousarray(padded.reshape(pieces, _PIECE).T)


@functools.cache
def _table() -> Register:
    """Return what each byte leaves in a register of zeros."""
    register: Register = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        register = (register >> 1) ^ np.where(register & 1, _POLYNOMIAL, 0).astype(np.uint32)
    return register


@functools.cache
def _zeros(count: int) -> Register:
    """Return what ``count`` bytes of zeros, a power of two, make of each bit of a register."""
    bits: Register = np.uint32(1) << np.arange(32, dtype=np.uint32)
    if count == 1:
        return np.asarray(_table()[bits & 0xFF] ^ (bits >> 8))
    half = _zeros(count // 2)
    return _apply(half, half)


def _apply(operator: Register, registers: Any) -> Register:
    """Return what a linear operator, given by what it makes of each bit, makes of registers."""
    result: Register = np.zeros_like(registers)
    for bit, made in enumerate(operator):
        result ^= ((registers >> np.uint32(bit)) & np.uint32(1)) * made
    return result
