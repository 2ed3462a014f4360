"""Whether a value from another process is of the type that a message declares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal, get_args, get_origin, get_type_hints, is_typeddict

__all__ = ["misfit", "types_of"]


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
    if origin is None:
        is_right = isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
        return "" if is_right else name
    parts = _parts(value, origin, arguments, name)
    if parts is None:
        return name
    return next((found for part in parts if (found := misfit(*part))), "")


def _parts(
    value: Any, origin: Any, arguments: tuple[Any, ...], name: str
) -> list[tuple[Any, Any, str]] | None:
    """Return the parts of a mapping or a sequence with their types; None for another value."""
    if issubclass(origin, Mapping) and isinstance(value, Mapping):
        of_key, of_value = arguments
        keys = [(key, of_key, name) for key in value]
        return [*keys, *((part, of_value, f"{name}.{key}") for key, part in value.items())]
    if issubclass(origin, Sequence) and isinstance(value, (list, tuple)):
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
