"""CRC-32C, the checksum of TensorFlow's records, in numpy.

The polynomial is Castagnoli's, https://www.rfc-editor.org/rfc/rfc3720#appendix-B.4. A checksum is
linear: those of many pieces are computed side by side, and then joined in pairs.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
    if len(data) < _INVERTED:
        register = _after_bytes(np.array([_ONES], np.uint32), data)
        return int(register[0]) ^ _ONES
    pieces = _pieces(len(data))
    register = _after_bytes(np.zeros(pieces, np.uint32), _columns(data, pieces))
    length = _PIECE
    while len(register) > 1:
        earlier = _apply(_zeros(length), register[0::2])
        register = earlier ^ register[1::2]
        length *= 2
    return int(register[0]) ^ _ONES


def _after_bytes(registers: Register, columns: Iterable[Any]) -> Register:
    """Return registers after a byte more for each of them, or one for all, from each column."""
    table = _table()
    for column in columns:
        leaving = (registers ^ column) & 0xFF
        registers = table[leaving] ^ (registers >> 8)
    return registers


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
        subtracted = np.where(register & 1, _POLYNOMIAL, 0)
        register = (register >> 1) ^ subtracted.astype(np.uint32)
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
        is_set = (registers >> np.uint32(bit)) & np.uint32(1)
        result ^= is_set * made
    return result
