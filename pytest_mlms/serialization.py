"""Records to plain JSON values, and back: the one place where results change their form."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

__all__ = ["from_plain", "omitted_if_default", "to_plain"]

Record = TypeVar("Record")

_OMIT = {"omit_if_default": True}


def omitted_if_default(default: Any) -> Any:
    """Declare a field of a dataclass that is left out of JSON while it has its default."""
    return dataclasses.field(default=default, metadata=_OMIT)


def to_plain(value: Any) -> Any:
    """Return a record as values that JSON has.

    Dataclasses and named tuples become objects with a key for each field, other sequences become
    lists, sets become sorted lists, enums their values, and paths their text. numpy's numbers and
    arrays become Python's. JSON has no infinity and no NaN: both become null. Raises TypeError for
    anything else.
    """
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, Path):
        return str(value)
    return _plain_container(value)


def from_plain(kind: type[Record], value: Any) -> Record:
    """Return the record of a dataclass or named tuple that ``to_plain`` turned into ``value``.

    Raises pydantic.ValidationError where ``value`` is none of that kind.
    """
    from pydantic import TypeAdapter

    return TypeAdapter(kind).validate_python(value)


def _plain_container(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return _plain_dataclass(value)
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return to_plain(value._asdict())
    if isinstance(value, Mapping):
        return {str(key): to_plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_plain(entry) for entry in value]
    if isinstance(value, (set, frozenset)):
        return sorted(to_plain(entry) for entry in value)
    if hasattr(value, "tolist"):  # a number or an array of numpy, which is not imported for it
        return to_plain(value.tolist())
    raise TypeError(f"{type(value).__name__} has no form in JSON: {value!r}")


def _plain_dataclass(record: Any) -> dict[str, Any]:
    plain = {}
    for field in dataclasses.fields(record):
        value = getattr(record, field.name)
        if field.metadata.get("omit_if_default") and value == field.default:
            continue
        plain[field.name] = to_plain(value)
    return plain
