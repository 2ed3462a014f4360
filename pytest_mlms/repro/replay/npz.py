"""Arrays in .npz files, without numpy: their raw bytes, as frames carry them.

The format is that of numpy.lib.format, versions 1 to 3
(https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html).
"""

import ast
import struct
import zipfile
from typing import Dict, Iterable, List, NamedTuple, Tuple

_MAGIC = b"\x93NUMPY"
_ALIGNMENT = 64  # bytes that a header is filled up to


class Array(NamedTuple):
    """An array in C order: its name, numpy's text of its type, its shape, its bytes."""

    name: str
    dtype: str
    shape: Tuple[int, ...]
    data: bytes

    def __str__(self) -> str:
        sizes = ",".join(map(str, self.shape))
        return "%s %s[%s]" % (self.name, _KINDS.get(self.dtype[1], "") + self.bits, sizes)

    @property
    def bits(self) -> str:
        """The bits of an element."""
        return str(8 * int(self.dtype[2:]))


_KINDS = {"f": "float", "i": "int", "u": "uint", "b": "bool", "c": "complex"}


def read_npz(path: str) -> List[Array]:
    """Return the arrays of a file; raises ValueError for one of another form."""
    found = []
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            if not info.filename.endswith(".npy"):
                raise ValueError("%r is no array" % info.filename)
            found.append(_array(info.filename[: -len(".npy")], archive.read(info)))
    return found


def write_npz(path: str, arrays: Iterable[Array]) -> None:
    """Write arrays to a file that numpy.load reads."""
    with zipfile.ZipFile(path, "w") as archive:
        for array in arrays:
            archive.writestr(array.name + ".npy", _header(array) + array.data)


def _array(name: str, content: bytes) -> Array:
    if content[:6] != _MAGIC:
        raise ValueError("%r is no array" % name)
    long = content[6] > 1
    begin = 12 if long else 10
    (length,) = struct.unpack_from("<I" if long else "<H", content, 8)
    header: Dict[str, object] = ast.literal_eval(content[begin : begin + length].decode("utf-8"))
    if header["fortran_order"]:
        raise ValueError("%r is in the order of Fortran" % name)
    shape = header["shape"]
    assert isinstance(shape, tuple)
    return Array(name, str(header["descr"]), shape, content[begin + length :])


def _header(array: Array) -> bytes:
    text = "{'descr': %r, 'fortran_order': False, 'shape': %r, }" % (array.dtype, array.shape)
    filled = -(len(text) + 11) % _ALIGNMENT
    line = text.encode("utf-8") + b" " * filled + b"\n"
    return _MAGIC + b"\x01\x00" + struct.pack("<H", len(line)) + line
