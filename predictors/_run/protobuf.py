"""Reading and writing of protocol-buffer messages without a schema.

Predictors read a few fields of files whose packages are not in a framework's interpreter. The
encoding is https://protobuf.dev/programming-guides/encoding.
"""

from typing import Any, Iterator, List, NamedTuple, Union

_VARINT = 0
_FIXED_64 = 1
_LENGTH = 2
_GROUP = 3
_END_OF_GROUP = 4
_FIXED_32 = 5
_MOST_BITS = 70
_FIXED_SIZES = {_FIXED_64: 8, _FIXED_32: 4}


class Field(NamedTuple):
    """One field of a message: a whole number, or the bytes of what has a length.

    The bytes are a slice of the message, so a message that is a memoryview is not copied.
    """

    number: int
    value: Union[int, Any]


def fields(message: Any) -> Iterator[Field]:
    """Yield the fields of a message in their order, without groups and those of a fixed size.

    Raises ValueError where the message is cut short or is none.
    """
    depth = 0
    for kind, field in _all_fields(message):
        if kind == _GROUP:
            depth += 1
        elif kind == _END_OF_GROUP:
            depth -= 1
        elif depth == 0 and kind in (_VARINT, _LENGTH):
            yield field
    if depth:
        raise ValueError("a group is cut short")


def _all_fields(message):
    """Yield the wire type of each field, and the field; those of other types have no value."""
    place = 0
    while place < len(message):
        key, place = _read_varint(message, place)
        number = key >> 3
        kind = key & 7
        value = None
        if kind == _VARINT:
            value, place = _read_varint(message, place)
        elif kind not in (_GROUP, _END_OF_GROUP):
            size, place = _read_size(message, place, kind)
            end = place + size
            if end > len(message):
                raise ValueError("a field is cut short")
            value = message[place:end]
            place = end
        yield kind, Field(number, value)


def values(message: Any, number: int) -> List[Any]:
    """Return the values of each field of this number."""
    return [field.value for field in fields(message) if field.number == number]


def last_value(message: Any, number: int) -> Any:
    """Return the value of a field that occurs once; the last one counts.

    Raises ValueError where there is none.
    """
    found = values(message, number)
    if not found:
        raise ValueError("the message has no field %d" % number)
    return found[-1]


def encode_field(number: int, content: bytes) -> bytes:
    """Return the encoding of a field with bytes in it."""
    key = number << 3 | _LENGTH
    return _encode_varint(key) + _encode_varint(len(content)) + content


def _read_size(message, place, kind):
    """Return the bytes that a field's value takes, and where the value begins."""
    if kind == _LENGTH:
        return _read_varint(message, place)
    if kind not in _FIXED_SIZES:
        raise ValueError("there is no wire type %d" % kind)
    return _FIXED_SIZES[kind], place


def _read_varint(message, place):
    """Return a whole number and the place behind it: seven bits a byte, the lowest first."""
    value = 0
    shift = 0
    while place < len(message) and shift < _MOST_BITS:
        byte = message[place]
        value |= (byte & 0x7F) << shift
        shift += 7
        place += 1
        if byte < 0x80:
            return value, place
    raise ValueError("a number is cut short, or too long")


def _encode_varint(value):
    data = bytearray()
    while value > 0x7F:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    data.append(value)
    return bytes(data)
