"""Records to plain JSON values, and back: the one place where results change their form."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, TypeVar

from pytest_mlms.core.text import encodable, shortened

__all__ = [
    "NullAs",
    "OrDefault",
    "from_plain",
    "omitted_if_default",
    "parse_json",
    "plain_as_list",
    "plain_as_whole",
    "to_plain",
]

Record = TypeVar("Record")

_LISTS: set[type] = set()
_WHOLE: set[type] = set()
_MOST_BITS = 1024  # of an integer; Python writes some thousand, other programs 64 or a float's 1024


@dataclasses.dataclass(frozen=True)
class NullAs:
    """Annotation of a float field: the infinity or NaN that null in JSON stands for.

    For example ``low: Annotated[float, NullAs(-math.inf)]``.
    """

    value: float

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        return core_schema.no_info_before_validator_function(self._restore, handler(source))

    def _restore(self, value: Any) -> Any:
        return self.value if value is None else value


@dataclasses.dataclass(frozen=True)
class OrDefault:
    """Annotation of a field: what ``from_plain`` takes for a value of another type."""

    value: Any

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        schema = handler(source)
        return core_schema.with_default_schema(schema, default=self.value, on_error="default")


def plain_as_list(kind: type[Record]) -> type[Record]:
    """Class decorator for a named tuple that becomes a list in JSON, not an object."""
    _LISTS.add(kind)
    return kind


def plain_as_whole(kind: type[Record]) -> type[Record]:
    """Class decorator for a record in whose JSON no field is omitted, at any depth."""
    _WHOLE.add(kind)
    return kind


def omitted_if_default(default: Any) -> Any:
    """Declare a field of a dataclass that is left out of JSON while it has its default."""
    return dataclasses.field(default=default, metadata={"omitted": default})


def parse_json(text: str | bytes) -> Any:
    """Return the value of JSON; raises ValueError, also where it is nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def to_plain(value: Any, whole: bool = False) -> Any:
    """Return a record as values that JSON has.

    Dataclasses and named tuples become objects with a key for each field. A named tuple that is
    declared with ``plain_as_list`` becomes a list, as other sequences do. Sets become sorted lists,
    enums their values, and paths their text. numpy's numbers and arrays become Python's. JSON has
    no infinity and no NaN: both become null. What UTF-8 can't have of a text is escaped. With
    ``whole``, no field is omitted. Raises TypeError for anything else, and ValueError for an
    integer that is too large to be written.
    """
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        raise ValueError(f"an integer of {value.bit_length():,} bits has no form in JSON")
    if isinstance(value, str):
        return encodable(value)
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, Path):
        return str(value)
    return _plain_container(value, whole)


def from_plain(kind: type[Record], value: Any) -> Record:
    """Return the record of a dataclass or named tuple that ``to_plain`` turned into ``value``.

    A float field that may be infinite or NaN needs the annotation ``NullAs``. Raises
    pydantic.ValidationError for a value of another kind.
    """
    hashable: Any = kind
    record: Record = _adapter(hashable).validate_python(value)
    return record


@lru_cache(maxsize=64)
def _adapter(kind: Any) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def _plain_container(value: Any, whole: bool) -> Any:
    if dataclasses.is_dataclass(value):
        return _plain_dataclass(value, whole)
    if isinstance(value, tuple) and hasattr(value, "_asdict") and type(value) not in _LISTS:
        return to_plain(value._asdict(), whole)
    if isinstance(value, Mapping):
        return {encodable(str(key)): to_plain(entry, whole) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_plain(entry, whole) for entry in value]
    if isinstance(value, (set, frozenset)):
        return sorted(to_plain(entry) for entry in value)
    if hasattr(value, "tolist"):  # a number or an array of numpy, which is not imported for it
        python_value = value.tolist()
        if type(python_value) is not type(value):  # as that of a longdouble is
            return to_plain(python_value)
    raise TypeError(f"{type(value).__name__} has no form in JSON: {shortened(repr(value), 80)}")


def _plain_dataclass(record: Any, whole: bool) -> dict[str, Any]:
    kind = type(record)
    whole = whole or kind in _WHOLE
    plain = {}
    hashable: Any = kind
    for name, omitted in _fields_of(hashable):
        value = getattr(record, name)
        if whole or omitted is dataclasses.MISSING or value != omitted:
            plain[name] = to_plain(value, whole)
    return plain


@lru_cache(maxsize=256)
def _fields_of(kind: Any) -> list[tuple[str, Any]]:
    """Return the names of a dataclass' fields, each with the value for which it is omitted."""
    missing = dataclasses.MISSING
    return [
        (field.name, field.metadata.get("omitted", missing)) for field in dataclasses.fields(kind)
    ]


_MANY_DIGITS = re.compile(r"\d{309}")
_SURROGATE = re.compile(r"\\u[dD]")
_CHUNK = 1 << 20  # bytes
_ANY_LENGTH = 1 << 60


@dataclass(frozen=True)
class JsonLine:
    """A line and its place in the file; no ``content`` where it is too long or no JSON object."""

    position: int
    length: int
    content: dict[str, Any] | None
    is_too_long: bool = False

    @property
    def end(self) -> int:
        """The place of the next line."""
        return self.position + self.length


def lines_from(
    file: IO[bytes], position: int = 0, longest: int = _ANY_LENGTH
) -> Iterator[JsonLine]:
    """Yield the lines of a file from a position on, but for a last one that is cut off."""
    file.seek(position)
    while data := file.readline(longest + 1):
        length = len(data)
        is_too_long = length > longest
        while is_too_long and data and not data.endswith(b"\n"):
            data = file.readline(_CHUNK)
            length += len(data)
        content = None if is_too_long else read_line(data)
        if content is None and not data.endswith(b"\n"):
            return  # it is being written
        yield JsonLine(position, length, content, is_too_long)
        position += length


def read_line(text: str | bytes) -> dict[str, Any] | None:
    """Return the object of a line; None for a line that is cut off or is something else.

    A text with half of a surrogate pair is something else: neither pages nor databases take it, and
    ``to_plain`` writes none. So are integers beyond any float, and what is nested deeper than
    Python reads.
    """
    try:
        decoded = text if isinstance(text, str) else text.decode()
        line = json.loads(decoded, parse_int=_small if _MANY_DIGITS.search(decoded) else None)
        if _SURROGATE.search(decoded):
            json.dumps(line, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return None
    return line if isinstance(line, dict) else None


def _small(text: str) -> int:
    """Return an integer that a float can stand for; raises ValueError."""
    if not math.isfinite(float(text)):
        raise ValueError("an integer that is none of a measurement")
    return int(text)
