"""Arrays of .npz and .npy files, each checked by its header, and rows that stay in the file.

numpy's own reader allocates what a header says before it looks at what the file has.
"""

from __future__ import annotations

import io
import lzma
import math
import os
import struct
import tempfile
import weakref
import zipfile
import zlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from pytest_mlms.core.arrays import Array
from pytest_mlms.core.errors import DatasetError
from pytest_mlms.core.files import open_regular
from pytest_mlms.core.memory import shortage


class OpenFile:
    """A descriptor of its own of an open file, closed when nothing needs it any more."""

    def __init__(self, file: IO[bytes]) -> None:
        self.descriptor = os.dup(file.fileno())
        weakref.finalize(self, os.close, self.descriptor)


@dataclass(frozen=True, eq=False)
class StoredRows(Sequence[NDArray[Any]]):
    """The rows of an array in C order, which begins at ``offset`` bytes of an open file.

    Threads may read at once. The file is kept open.
    """

    file: OpenFile
    offset: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def ndim(self) -> int:
        """The number of its axes."""
        return len(self.shape)

    def reshape(self, shape: tuple[int, ...]) -> StoredRows:
        """Return it with other axes behind the first, for as many numbers."""
        return StoredRows(self.file, self.offset, shape, self.dtype)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: Any) -> Any:
        row = self.shape[1:]
        size = math.prod(row) * self.dtype.itemsize
        number = range(len(self))[index]
        data = os.pread(self.file.descriptor, size, self.offset + number * size)
        if len(data) < size:
            raise DatasetError("the file was cut off while it was read; run again")
        return np.frombuffer(data, self.dtype).reshape(row)


_CHUNK = 1 << 20  # bytes
_LARGEST_READ = 64 << 20  # bytes of an array that is read whole
_LOCAL_HEADER = struct.Struct("<26x2H")  # of a member of an archive: the lengths of two fields
_SUFFIX = ".npy"
_NUMBERS = "biuf"
"""The kinds of numpy's types that inputs and labels may have."""
_TEXT = "U"

_DAMAGES = (
    ValueError,
    OSError,
    EOFError,
    KeyError,
    NotImplementedError,
    OverflowError,
    RuntimeError,
    lzma.LZMAError,
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
)
"""Errors that Python's readers raise for damaged, encrypted and unusual zip files."""


class _Header(NamedTuple):
    """The form of an array in a file."""

    shape: tuple[int, ...]
    is_fortran: bool
    dtype: np.dtype[Any]

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


class _Wanted(NamedTuple):
    """An array to read: its name, and the kinds that it may have.

    It may stay in a file if it is ``streamed``, and ``single`` ones may have no axes.
    """

    name: str
    kinds: str
    streamed: bool
    single: bool


class _Unusable(Exception):
    """An array that can't be used; the text says why."""


def read_npz(
    path: Path,
    names: Collection[str],
    texts: Collection[str] = (),
    streamed: Collection[str] = (),
    singles: Collection[str] = (),
) -> tuple[list[str], dict[str, Array | StoredRows]]:
    """Return the names of all arrays of a file, and its arrays of ``names``.

    Arrays of ``texts`` may be texts, and of ``singles`` single numbers. Large arrays of
    ``streamed`` stay in the file, or in a temporary one if it is compressed. Other arrays are not
    read. Raises DatasetError.
    """
    try:
        with open_regular(path) as file:
            if file.read(len(npy.MAGIC_PREFIX)) == npy.MAGIC_PREFIX:
                raise ValueError("it holds a single array")
            with zipfile.ZipFile(file) as archive:
                members = _members(archive)
                arrays: dict[str, Array | StoredRows] = {}
                for name in names:
                    if name in members:
                        kinds = _NUMBERS + _TEXT if name in texts else _NUMBERS
                        wanted = _Wanted(name, kinds, name in streamed, name in singles)
                        arrays[name] = _read(file, archive, members[name], wanted)
                return sorted(members), arrays
    except _Unusable as error:
        raise DatasetError(f"{error}; write it again with numpy.savez") from None
    except _DAMAGES as error:
        reason = getattr(error, "strerror", None) or error
        problem = f"is not an .npz file of plain arrays: {reason}"
        raise DatasetError(f"{problem}; write it with numpy.savez") from error


def _members(archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    found: dict[str, zipfile.ZipInfo] = {}
    for member in archive.infolist():
        name = member.filename.removesuffix(_SUFFIX)
        if name in found:
            raise _Unusable(f"has two arrays {name!r}")
        found[name] = member
    return found


def read_npy(data: bytes) -> Array:
    """Return the numbers of an .npy file, by its content; raises DatasetError."""
    file = io.BytesIO(data)
    try:
        header = _read_header(file, "is an array")
        _check("is an array", header, len(data) - file.tell(), _NUMBERS)
        _check_memory("is an array", header)
        return _read_data(file, header, "is an array")
    except _Unusable as error:
        raise DatasetError(f"{error}; write it again with numpy.save") from None


def _read(
    whole: IO[bytes], archive: zipfile.ZipFile, member: zipfile.ZipInfo, wanted: _Wanted
) -> Array | StoredRows:
    with archive.open(member) as file:
        subject = f"has the array {wanted.name!r}"
        header = _read_header(file, subject)
        begin = file.tell()
        held = member.file_size - begin
        if not header.shape and not wanted.single:
            problem = f"has {wanted.name!r} as a single number"
            raise _Unusable(f"{problem}, expected a row for each element")
        _check(subject, header, held, wanted.kinds)
        can_stay = not header.is_fortran and header.dtype.kind != _TEXT
        if not (wanted.streamed and can_stay and header.bytes > _LARGEST_READ):
            _check_memory(subject, header)
            return _read_data(file, header, subject)
        if member.compress_type == zipfile.ZIP_STORED:
            _check_content(file)
            offset = _data_offset(whole.fileno(), member) + begin
            return StoredRows(OpenFile(whole), offset, header.shape, header.dtype)
        return StoredRows(_unpacked(file, subject), 0, header.shape, header.dtype)


def _unpacked(file: IO[bytes], subject: str) -> OpenFile:
    """Return the rest of a compressed member in an unnamed temporary file."""
    try:
        with tempfile.TemporaryFile() as kept:
            while data := file.read(_CHUNK):
                kept.write(data)
            kept.flush()
            return OpenFile(kept)
    except OSError as error:
        problem = f"{subject}, which can't be unpacked in {tempfile.gettempdir()}"
        raise DatasetError(f"{problem}: {error.strerror or error}; set TMPDIR") from error


def _check_content(file: IO[bytes]) -> None:
    """Read the rest of a member of an archive, whose reader compares its checksum at the end."""
    while file.read(_CHUNK):
        pass


def _data_offset(descriptor: int, member: zipfile.ZipInfo) -> int:
    """Return where the data of a member begins: behind its header, its name and extra fields.

    https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT, 4.3.7
    """
    header = os.pread(descriptor, _LOCAL_HEADER.size, member.header_offset)
    name, extra = _LOCAL_HEADER.unpack(header)
    return int(member.header_offset + _LOCAL_HEADER.size + name + extra)


def _read_header(file: IO[bytes], subject: str) -> _Header:
    try:
        version = npy.read_magic(file)
        if version == (1, 0):
            return _Header(*npy.read_array_header_1_0(file))
        if version == (2, 0):
            return _Header(*npy.read_array_header_2_0(file))
        raise ValueError(f"its format is {version[0]}.{version[1]}, that of records")
    except Exception as error:  # the header is a Python expression; any error may come of it
        raise _Unusable(f"{subject} with a damaged header: {error}") from error


def _check(subject: str, header: _Header, held: int, kinds: str) -> None:
    """Raise _Unusable for an array of other kinds, or with more or less data than it says."""
    kind = header.dtype.kind
    if kind == "O":
        raise _Unusable(f"{subject} of objects, which would have to be unpickled")
    if kind == "S" and _TEXT in kinds:
        advice = "decode them: numpy.char.decode(…)"
        raise _Unusable(f"{subject} of {header.dtype}, which are bytes and no texts: {advice}")
    if kind not in kinds:
        raise _Unusable(f"{subject} of {header.dtype}, not of real numbers")
    if min(header.shape, default=0) < 0 or header.bytes != held:
        shape = " x ".join(map(str, header.shape))
        said = f"{header.dtype} {shape}, and the file has {held:,} bytes of it"
        raise _Unusable(f"{subject} as {said}")


def _check_memory(subject: str, header: _Header) -> None:
    """Raise _Unusable for an array that wouldn't fit into the memory that is free."""
    missing = shortage(header.bytes)
    if missing:
        raise _Unusable(f"{subject}, which takes {missing}")


def _read_data(file: IO[bytes], header: _Header, subject: str) -> Array:
    array = np.empty(math.prod(header.shape), header.dtype)
    view = array.view(np.uint8).data
    done = 0
    while done < len(view):
        data = file.read(min(_CHUNK, len(view) - done))
        if not data:
            raise _Unusable(f"{subject}, which ends after {done:,} bytes")
        view[done : done + len(data)] = data
        done += len(data)
    order = "F" if header.is_fortran else "C"
    return array.reshape(header.shape, order=order)  # type: ignore[call-overload,no-any-return]
