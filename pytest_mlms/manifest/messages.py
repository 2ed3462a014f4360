"""What pydantic found, in the words of a person who edits a manifest: what is wrong.

What to write instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from pytest_mlms.manifest.schema import Manifest
from pytest_mlms.manifest.types import PATTERNS, instead
from pytest_mlms.manifest.yaml12 import Document, Path

__all__ = ["describe"]

_TYPES = {
    "list": "a list, '- …' for each",
    "tuple": "a list, '[…, …]'",
    "dictionary": "keys and values",
    "object": "keys and values",
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
}


def describe(
    error: ErrorDetails, document: Document, root: type[BaseModel] = Manifest, depth: int = 0
) -> tuple[int, str]:
    """Return the line of a fault, and its text.

    ``root`` is the model of what lies ``depth`` keys down.
    """
    model_at = partial(_model, root, depth)
    path = _written(error["loc"], document)
    key = error["loc"][-1] if error["loc"] else ""
    if error["type"] == "missing":
        hint = _hint((*path, key), model_at)
        return document.line(path), _at(path) + f"{key!r} is missing; write '{key}: …'" + (
            f", {hint}" if hint else ""
        )
    if error["type"] == "extra_forbidden":
        parent = _written(error["loc"][:-1], document)
        return document.line((*parent, key)), _at(
            parent
        ) + f"unknown key {key!r}; {instead(str(key), _keys(model_at(parent)))}"
    return document.line(path), _at(path) + _text(error, _hint(path, model_at))


def _text(error: ErrorDetails, hint: str | None) -> str:
    value, context = error["input"], error.get("ctx", {})
    if error["type"] == "value_error":
        return str(context["error"])
    if error["type"] == "literal_error":
        return f"{value!r} is not known; {instead(str(value), _quoted(context['expected']))}"
    if error["type"] == "too_short":
        return f"is empty; write at least {context['min_length']}"
    wanted = PATTERNS.get(context.get("pattern", "")) or hint or _plainly(error["msg"])
    return f"found {_brief(value)}; write {wanted}"


def _plainly(message: str) -> str:
    """Turn pydantic's "Input should be a valid list" into what to write."""
    wanted = message.removeprefix("Input should be ").removeprefix("a valid ").removeprefix("an ")
    return next((plain for word, plain in _TYPES.items() if wanted.startswith(word)), wanted)


def _written(location: Iterable[str | int], document: Document) -> Path:
    """Drop from pydantic's location what isn't in the file.

    Union tags, and the index of a limit that is no list.
    """
    path: Path = ()
    for part in location:
        if (*path, part) in document.lines:
            path = (*path, part)
    return path


def _at(path: Path) -> str:
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return f"{text.lstrip('.')}: " if text else ""


def _quoted(expected: str) -> list[str]:
    """Take the values out of pydantic's "'a', 'b' or 'c'"."""
    return expected.split("'")[1::2]


def _brief(value: Any) -> str:
    kind = {dict: "a mapping", list: "a list", type(None): "nothing"}.get(type(value))
    return kind or repr(value)


def _keys(model: type[BaseModel] | None) -> list[str]:
    return sorted(model.model_fields) if model else []


def _hint(path: Path, model_at: Callable[[Path], type[BaseModel] | None]) -> str | None:
    model = model_at(path[:-1])
    field = model.model_fields.get(str(path[-1])) if model and path else None
    return field.description if field else None


def _model(root: type[BaseModel], depth: int, path: Path) -> type[BaseModel] | None:
    """Return the model that validates what is at ``path``."""
    model: type[BaseModel] | None = root if len(path) >= depth else None
    for part in path[depth:]:
        if isinstance(part, str) and model is not None:
            field: FieldInfo | None = model.model_fields.get(part)
            model = _model_in(field.annotation) if field else None
    return model


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if (
        not get_args(annotation)
        and isinstance(annotation, type)
        and issubclass(annotation, BaseModel)
    ):
        return annotation
    return next((found for part in get_args(annotation) if (found := _model_in(part))), None)
