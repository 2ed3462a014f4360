"""Files of records: TensorFlow's TFRecord and MXNet's RecordIO, read record by record.

- TFRecord: a length of 64 bits, its masked CRC-32C, the data, and the masked CRC-32C of that, all
  little-endian. https://www.tensorflow.org/tutorials/load_data/tfrecord
- RecordIO: the number 0xced7230a, a word with the length in its lower 29 bits, and the data, filled
  up to 4 bytes. Data that has that number in it is cut there into parts, which the upper 3 bits
  count: 0 whole, 1 first, 2 middle, 3 last. https://github.com/dmlc/dmlc-core, recordio.h

CRC-32C has Castagnoli's polynomial, https://www.rfc-editor.org/rfc/rfc3720#appendix-B.4. A checksum
is linear: those of many pieces are computed side by side in numpy, and then joined in pairs.
"""

from __future__ import annotations

import functools
import os
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pytest_mlms.core.errors import DatasetError
from pytest_mlms.core.files import open_regular

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
    """Return the checksum of ``data``, by google-crc32c where it is installed with its C code."""
    compiled = _compiled()
    return crc32c_in_numpy(data) if compiled is None else compiled(data)


@functools.cache
def _compiled() -> Callable[[bytes], int] | None:
    try:
        import google_crc32c
    except ImportError:
        return None
    return google_crc32c.value if google_crc32c.implementation == "c" else None


def crc32c_in_numpy(data: bytes) -> int:
    """Return the checksum of ``data`` by numpy alone."""
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
    """Return the results of a linear operator, given by its result of each bit, for registers."""
    result: Register = np.zeros_like(registers)
    for bit, made in enumerate(operator):
        is_set = (registers >> np.uint32(bit)) & np.uint32(1)
        result ^= is_set * made
    return result


_TF_HEAD = struct.Struct("<QI")
_TF_TAIL = struct.Struct("<I")
_IO_HEAD = struct.Struct("<II")
_MAGIC = 0xCED7230A
_LENGTH_BITS = 29
_WHOLE, _FIRST, _MIDDLE, _LAST = range(4)
_MOST_BYTES = 1 << 30  # of a record
_AGAIN = "fetch or write the file again"


class _Span(NamedTuple):
    """A part of a file."""

    offset: int
    length: int


def record_kind(path: Path) -> str:
    """Return "tfrecord" or "recordio" by how a file begins, "" for another file."""
    try:
        with open_regular(path) as file:
            head = file.read(_TF_HEAD.size)
    except OSError:
        return ""
    if len(head) < _TF_HEAD.size:
        return ""
    if _IO_HEAD.unpack_from(head)[0] == _MAGIC:
        return "recordio"
    length, checksum = _TF_HEAD.unpack(head)
    if length <= _MOST_BYTES and masked_crc32c(head[:8]) == checksum:
        return "tfrecord"
    return ""


def find_records(path: Path) -> list[Path]:
    """Return the files of records that a file or a folder is, by name: the parts of a dataset."""
    if path.is_file():
        return [path] if record_kind(path) else []
    return [file for file in sorted(path.rglob("*")) if file.is_file() and record_kind(file)]


def open_records(path: Path) -> RecordFile:
    """Open a file of records; raises DatasetError where it isn't one, or is cut off."""
    kind = record_kind(path)
    if kind == "tfrecord":
        return _TfRecords(path)
    if kind == "recordio":
        return _RecordIo(path)
    raise DatasetError(f"{path.name} is neither TFRecord nor RecordIO; {_AGAIN}")


class RecordFile(Sequence[bytes], ABC):
    """The records of a file, each read, and checked as far as it can be, when it is asked for."""

    def __init__(self, path: Path) -> None:
        self.name = path.name
        self._file: IO[bytes] = open_regular(path)
        self._size = os.fstat(self._file.fileno()).st_size
        self._spans = list(self._index())

    def __len__(self) -> int:
        return len(self._spans)

    @abstractmethod
    def _index(self) -> Iterator[Any]:
        """Yield where each record is; raises DatasetError for a file that is damaged there."""

    def place(self, index: int) -> str:
        """Return what a message calls a record; the first has the number 0."""
        return f"{self.name}: record {index}"

    def _read(self, offset: int, length: int, number: int) -> bytes:
        data = os.pread(self._file.fileno(), length, offset)
        if len(data) < length:
            raise DatasetError(f"{self.place(number)} is cut off; {_AGAIN}")
        return data

    def _checked_span(self, offset: int, length: int, number: int) -> _Span:
        if length > _MOST_BYTES or offset + length > self._size:
            raise DatasetError(f"{self.place(number)} is cut off, or larger than 1 GiB; {_AGAIN}")
        return _Span(offset, length)


class _TfRecords(RecordFile):
    """Records of a TFRecord file. An error doesn't name the record."""

    def _index(self) -> Iterator[_Span]:
        place = 0
        number = 0
        while place < self._size:
            head = self._read(place, _TF_HEAD.size, number)
            length, checksum = _TF_HEAD.unpack(head)
            if masked_crc32c(head[:8]) != checksum:
                problem = f"{self.place(number)} has a length with a wrong checksum"
                raise DatasetError(f"{problem}; {_AGAIN}")
            span = self._checked_span(place + _TF_HEAD.size, length, number)
            yield span
            place = span.offset + length + _TF_TAIL.size
            number += 1

    def __getitem__(self, index: Any) -> Any:
        offset, length = self._spans[index]
        data = self._read(offset, length + _TF_TAIL.size, index)
        content = data[:length]
        if masked_crc32c(content) != _TF_TAIL.unpack(data[length:])[0]:
            raise DatasetError(f"its checksum is wrong; {_AGAIN}")
        return content


class _RecordIo(RecordFile):
    """Records of a RecordIO file, each of one part or several."""

    def _index(self) -> Iterator[list[_Span]]:
        place = 0
        parts: list[_Span] = []
        number = 0
        while place < self._size:
            head = self._read(place, _IO_HEAD.size, number)
            magic, word = _IO_HEAD.unpack(head)
            flag = word >> _LENGTH_BITS
            begins = flag in (_WHOLE, _FIRST)
            if magic != _MAGIC or flag > _LAST or begins == bool(parts):
                raise DatasetError(f"{self.place(number)} doesn't begin as one; {_AGAIN}")
            length = word & ((1 << _LENGTH_BITS) - 1)
            parts.append(self._checked_span(place + _IO_HEAD.size, length, number))
            place += _IO_HEAD.size + -(-length // 4) * 4
            if flag in (_WHOLE, _LAST):
                yield parts
                parts = []
                number += 1
        if parts:
            raise DatasetError(f"{self.place(number)} is cut off; {_AGAIN}")

    def __getitem__(self, index: Any) -> Any:
        parts = [self._read(offset, length, index) for offset, length in self._spans[index]]
        return struct.pack("<I", _MAGIC).join(parts)
