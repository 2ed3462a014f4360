"""A walk of the flatbuffer of a .tflite file: its operators, before an interpreter reads it."""

import mmap
import struct
from typing import Any, Iterator

_SHOWN = 64  # bytes of a name
_ASSIGN = 144  # ASSIGN_VARIABLE in TensorFlow Lite's schema.fbs


def check_operators(path: str) -> None:
    """Raise PermissionError where a file has operators of TensorFlow, ValueError for no .tflite.

    These may reach files or hosts. The prefix alone makes one: its options name what runs.
    """
    try:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            found = [name for name in _custom_operators(data) if name.startswith(b"Flex")]
    except (struct.error, ValueError) as error:
        raise ValueError("it is damaged, or no .tflite (%s)" % error) from error
    if found:
        text = "its operator %s may reach files or hosts; allow it with --mlms-allow-code"
        raise PermissionError(text % found[0].decode("ascii", "backslashreplace"))


def keeps_state(path: str) -> bool:
    """Return whether a file assigns variables, which the interpreter keeps from call to call."""
    try:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            places = [field(data, code, 3) for code in _operator_codes(data)]
            return any(place and number("<i", data, place) == _ASSIGN for place in places)
    except (struct.error, ValueError):
        return False


def _custom_operators(data: Any) -> Iterator[bytes]:
    """Yield the names of operators that aren't TensorFlow Lite's own, as C reads them."""
    for code in _operator_codes(data):
        name = field(data, code, 1)
        if name:
            text = target(data, name) + 4
            yield data[text : text + _SHOWN].partition(b"\0")[0]


def _operator_codes(data: Any) -> Iterator[int]:
    """Yield the place of the table of each kind of operator in a file."""
    codes = field(data, target(data, 0), 1)
    if not codes:
        return
    vector = target(data, codes)
    count = number("<I", data, vector)
    for place in range(vector + 4, vector + 4 + 4 * count, 4):
        yield target(data, place)


def field(data: Any, table: int, index: int) -> int:
    """Return the place of a field of a table, 0 where it is absent."""
    places = table - number("<i", data, table)
    entry = 4 + 2 * index
    offset = number("<H", data, places + entry) if entry < number("<H", data, places) else 0
    return table + offset if offset else 0


def target(data: Any, place: int) -> int:
    """Return the place that an offset points to."""
    return place + number("<I", data, place)


def number(kind: str, data: Any, place: int) -> int:
    """Return the number at a place; raises ValueError for one before the file's beginning."""
    if place < 0:
        raise ValueError("it points before its beginning")
    return struct.unpack_from(kind, data, place)[0]
