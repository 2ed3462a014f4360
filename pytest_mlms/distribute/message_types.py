"""The check that a value from another process is of the type that a message declares."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from types import UnionType
from typing import (
    Any,
    Literal,
    TypedDict,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.text import visible

_BITS = 64  # of numbers, such as the bytes of a memory
_SHOWN = 200  # characters of an error


@lru_cache(maxsize=64)
def types_of(kind: Any) -> Mapping[str, Any]:
    """Return the type of each field of a NamedTuple or TypedDict."""
    return get_type_hints(kind)


def misfit(value: Any, kind: Any, name: str) -> str:
    """Return the name of the first part of ``value`` that is of another type; "" for none."""
    if kind is Any:
        return ""
    if is_typeddict(kind):
        return _misfit_of_record(value, kind, name)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Literal:
        return "" if value in arguments else name
    if origin in (Union, UnionType):
        return "" if any(not misfit(value, each, name) for each in arguments) else name
    if origin is None:
        return "" if _is_of(value, kind) else name
    parts = _parts(value, origin, arguments, name)
    if parts is None:
        return name
    return next((found for part in parts if (found := misfit(*part))), "")


def _is_of(value: Any, kind: type) -> bool:
    """Return whether a value is of a class; a whole number is also one with a point."""
    kinds = (int, float) if kind is float else (kind,)
    if not isinstance(value, kinds) or isinstance(value, bool) != (kind is bool):
        return False
    if isinstance(value, float):
        return math.isfinite(value)
    return not isinstance(value, int) or value.bit_length() < _BITS


def _parts(
    value: Any, origin: Any, arguments: tuple[Any, ...], name: str
) -> list[tuple[Any, Any, str]] | None:
    """Return the parts of a mapping or a sequence with their types; None for another value."""
    if issubclass(origin, Mapping) and isinstance(value, Mapping):
        of_key, of_value = arguments
        keys = [(key, of_key, name) for key in value]
        return [*keys, *((part, of_value, f"{name}.{key}") for key, part in value.items())]
    if not isinstance(value, (list, tuple)):
        return None
    if origin is tuple and Ellipsis not in arguments:
        if len(value) != len(arguments):
            return None
        places = enumerate(zip(value, arguments, strict=True))
        return [(part, of_part, f"{name}.{index}") for index, (part, of_part) in places]
    if issubclass(origin, Sequence):
        return [(part, arguments[0], f"{name}.{index}") for index, part in enumerate(value)]
    return None


def _misfit_of_record(value: Any, kind: Any, name: str) -> str:
    if not isinstance(value, Mapping):
        return name
    for key, of_field in types_of(kind).items():
        if key not in value:
            if key in kind.__required_keys__:
                return f"{name}.{key}"
            continue
        found = misfit(value[key], of_field, f"{name}.{key}")
        if found:
            return found
    return ""


def commands_terminal(value: Any) -> bool:
    """Return whether a text in a value has a control character, as no name has."""
    if isinstance(value, str):
        return visible(value) != value
    if isinstance(value, Mapping):
        return any(map(commands_terminal, (*value, *value.values())))
    return isinstance(value, (list, tuple)) and any(map(commands_terminal, value))


class _FirstTeardown(TypedDict):
    nodeid: str
    verdict: Literal["ERROR"]
    message: str | None


class _Teardown(_FirstTeardown, total=False):
    repetition: int


def result_misfit(result: Any) -> str:
    """Return the error in the line of an item that a worker ran; "" for none."""
    from pytest_mlms.keep.results.item_line import ItemRecord, item_of

    if not isinstance(result, Mapping):
        return "it is no mapping"
    try:
        json.dumps(result)
        item_of(ItemRecord, result, Path("results.jsonl"), 1)
    except (MlmsError, TypeError, ValueError, RecursionError) as error:
        return visible(str(error)[:_SHOWN])
    return ""


def teardown_misfit(told: Any, nodeid: str) -> str:
    """Return the error in a worker's message on a tear-down that failed; "" for none."""
    wrong = misfit(told, _Teardown, "teardown")
    if wrong or not told.keys() <= types_of(_Teardown).keys():
        return f"{wrong or 'teardown'} is of another type"
    return "" if told["nodeid"] == nodeid else "its tear-down is that of another item"
