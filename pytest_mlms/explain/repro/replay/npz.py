"""Arrays in .npz files, without numpy: their raw bytes, as frames carry them.

The format is that of numpy.lib.format, versions 1 to 3
(https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html).
"""

import ast
import re
import struct
import zipfile
from typing import IO, Any, Dict, Iterable, List, NamedTuple, Tuple

from .record import Malformed
from .unpacking import DAMAGES, check_directory

_MAGIC = b"\x93NUMPY"
_LONGEST_HEADER = 1 << 16  # bytes
_LONGEST_DIRECTORY = 1 << 20  # bytes, of thousands of arrays
_ALIGNMENT = 64  # bytes that a header is filled up to
_TYPE = re.compile(r"[<>|=][fiubc]\d{1,2}")  # what frames carry: numbers
_KINDS = {"f": "float", "i": "int", "u": "uint", "b": "bool", "c": "complex"}

_DAMAGES = (*DAMAGES, LookupError, Malformed, MemoryError, SyntaxError, TypeError)
"""Errors of Python's readers of zip files and literals."""


class Array(NamedTuple):
    """An array in C order: its name, numpy's text of its type, its shape, its bytes."""

    name: str
    dtype: str
    shape: Tuple[int, ...]
    data: bytes

    def __str__(self) -> str:
        sizes = ",".join(map(str, self.shape))
        kind = _KINDS[self.dtype[1]]
        return "%s %s%d[%s]" % (self.name, kind, 8 * self.item_size, sizes)

    @property
    def item_size(self) -> int:
        """The bytes of an element."""
        return int(self.dtype[2:])


def read_npz(path: str) -> List[Array]:
    """Return the arrays of a file; raises OSError, and ValueError for one of another form."""
    with open(path, "rb") as file:
        return _arrays(file, whole=True)


def read_heads(file: IO[bytes]) -> List[Array]:
    """Return the arrays of a file without their bytes; raises as read_npz does."""
    return _arrays(file, whole=False)


def _arrays(file: IO[bytes], whole: bool) -> List[Array]:
    try:
        check_directory(file, _LONGEST_DIRECTORY)
        with zipfile.ZipFile(file) as archive:
            return _with_names([_read(archive, info, whole) for info in archive.infolist()])
    except _DAMAGES as error:
        raise ValueError("%s (%s)" % (error, type(error).__name__)) from None


def _with_names(arrays: List[Array]) -> List[Array]:
    if len({array.name for array in arrays}) < len(arrays):
        raise ValueError("it has two arrays of one name")
    return arrays


def write_npz(path: str, arrays: Iterable[Array]) -> None:
    """Write arrays to a file that numpy.load reads."""
    with zipfile.ZipFile(path, "w") as archive:
        for array in arrays:
            archive.writestr(array.name + ".npy", _header(array) + array.data)


def _read(archive: zipfile.ZipFile, info: zipfile.ZipInfo, whole: bool) -> Array:
    if not info.filename.endswith(".npy") or not info.filename.isprintable():
        raise ValueError("%r is no array" % info.filename)
    name = info.filename[: -len(".npy")]
    with archive.open(info) as file:
        if file.read(6) != _MAGIC:
            raise ValueError("%r is no array" % name)
        header, begin = _read_header(file)
        array = Array(name, header["descr"], header["shape"], b"")
        _check(array, header, info.file_size - begin)
        if not whole:
            return array
        array = array._replace(data=file.read())
    if len(array.data) != info.file_size - begin:
        raise ValueError("%r is cut off" % name)
    return array


def _read_header(file: IO[bytes]) -> Tuple[Dict[str, Any], int]:
    """Return the header of an array, and where its bytes begin."""
    is_long = file.read(2)[0] > 1
    (length,) = struct.unpack("<I", file.read(4)) if is_long else struct.unpack("<H", file.read(2))
    if length > _LONGEST_HEADER:
        raise ValueError("it has a header of %d bytes" % length)
    header: Dict[str, Any] = ast.literal_eval(file.read(length).decode("utf-8"))
    return header, (12 if is_long else 10) + length


def _check(array: Array, header: Dict[str, Any], held: int) -> None:
    if not _TYPE.fullmatch(array.dtype):
        raise ValueError("%r has no numbers" % array.name)
    if header["fortran_order"]:
        raise ValueError("%r is in the order of Fortran" % array.name)
    size = array.item_size
    for axis in array.shape:
        if not isinstance(axis, int) or axis < 0:
            raise ValueError("%r has the shape %r" % (array.name, array.shape))
        size *= axis
    if size != held:
        raise ValueError("%r has %d bytes, not %d" % (array.name, held, size))


def _header(array: Array) -> bytes:
    text = "{'descr': %r, 'fortran_order': False, 'shape': %r, }" % (array.dtype, array.shape)
    filled = -(len(text) + 11) % _ALIGNMENT
    line = text.encode("utf-8") + b" " * filled + b"\n"
    return _MAGIC + b"\x01\x00" + struct.pack("<H", len(line)) + line
