"""Reading of .npz files: arrays of numbers by name, each checked by its header before it is read.

numpy's own reader allocates what a header says before it looks at what the file has.
"""

from __future__ import annotations

import lzma
import math
import struct
import zipfile
import zlib
from collections.abc import Collection
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from pytest_mlms.errors import DatasetError
from pytest_mlms.files import open_regular
from pytest_mlms.memory import shortage

__all__ = ["read_npz"]

Array = NDArray[Any]

_CHUNK = 1 << 20  # bytes
_SUFFIX = ".npy"
_NUMBERS = "biuf"
"""The kinds of numpy's types that inputs and labels may have."""

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


class _Unusable(Exception):
    """An array that can't be used; the text says why."""


def read_npz(path: Path, names: Collection[str]) -> tuple[list[str], dict[str, Array]]:
    """Return the names of all arrays of a file, and those of ``names`` that it has.

    Other arrays are not read. Raises DatasetError.
    """
    try:
        with open_regular(path) as file:
            if file.read(len(npy.MAGIC_PREFIX)) == npy.MAGIC_PREFIX:
                raise ValueError("it holds a single array")
            with zipfile.ZipFile(file) as archive:
                members = _members(archive)
                arrays = {}
                for name in names:
                    if name in members:
                        arrays[name] = _read(archive, members[name], name)
                return sorted(members), arrays
    except _Unusable as error:
        raise DatasetError(f"{error}; write it again with numpy.savez") from None
    except _DAMAGES as error:
        reason = getattr(error, "strerror", None) or error
        problem = f"is not an .npz file of plain arrays: {reason}"
        raise DatasetError(f"{problem}; write it with numpy.savez") from error


def _members(archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    return {member.filename.removesuffix(_SUFFIX): member for member in archive.infolist()}


def _read(archive: zipfile.ZipFile, member: zipfile.ZipInfo, name: str) -> Array:
    with archive.open(member) as file:
        try:
            header = _read_header(file)
        except Exception as error:  # the header is a Python expression; any error may come of it
            raise _Unusable(f"has the array {name!r} with a damaged header: {error}") from error
        held = member.file_size - file.tell()
        _check(name, header, held)
        return _read_data(file, header, name)


def _read_header(file: IO[bytes]) -> _Header:
    version = npy.read_magic(file)
    if version == (1, 0):
        return _Header(*npy.read_array_header_1_0(file))
    if version == (2, 0):
        return _Header(*npy.read_array_header_2_0(file))
    raise ValueError(f"its format is {version[0]}.{version[1]}, that of records")


def _check(name: str, header: _Header, held: int) -> None:
    """Raise _Unusable for an array that isn't one of numbers, a row for each element, as said."""
    kind = header.dtype.kind
    if kind == "O":
        raise _Unusable(f"has the array {name!r} of objects, which would have to be unpickled")
    if kind not in _NUMBERS:
        raise _Unusable(f"has the array {name!r} of {header.dtype}, not of real numbers")
    if not header.shape:
        raise _Unusable(f"has {name!r} as a single number, expected a row for each element")
    if min(header.shape) < 0 or header.bytes != held:
        shape = " x ".join(map(str, header.shape))
        said = f"{header.dtype} {shape}, and the file has {held:,} bytes of it"
        raise _Unusable(f"has the array {name!r} as {said}")
    missing = shortage(header.bytes)
    if missing:
        raise _Unusable(f"has the array {name!r}, which takes {missing}")


def _read_data(file: IO[bytes], header: _Header, name: str) -> Array:
    array = np.empty(math.prod(header.shape), header.dtype)
    view = array.view(np.uint8).data
    done = 0
    while done < len(view):
        data = file.read(min(_CHUNK, len(view) - done))
        if not data:
            raise _Unusable(f"has the array {name!r}, which ends after {done:,} bytes")
        view[done : done + len(data)] = data
        done += len(data)
    order = "F" if header.is_fortran else "C"
    return array.reshape(header.shape, order=order)  # type: ignore[call-overload,no-any-return]
