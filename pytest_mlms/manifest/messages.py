"""Messages for pydantic's validation errors: what is wrong in a file, and what to write instead."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from pytest_mlms.core.tasks import tasks
from pytest_mlms.core.text import shortened
from pytest_mlms.manifest.schema import Manifest
from pytest_mlms.manifest.types import PATTERNS, instead
from pytest_mlms.manifest.yaml12 import Document, Error, Path

_EXPECTED = {
    "list": "a list, '- …' for each",
    "tuple": "a list, '[…, …]'",
    "dictionary": "keys and values",
    "object": "keys and values",
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
}
"""pydantic's name of a type -> what to write."""

_ELEMENT_TYPES = {
    "float": "float32",
    "fp32": "float32",
    "f32": "float32",
    "single": "float32",
    "double": "float64",
    "fp64": "float64",
    "half": "float16",
    "fp16": "float16",
    "int": "int64",
    "long": "int64",
    "byte": "uint8",
    "boolean": "bool",
}
"""Names of element types in other programs -> their names in a manifest."""

_LONGEST = 2000  # characters of an error, which quotes what was written

_FOUND = {dict: "a mapping", list: "a list", type(None): "nothing"}
"""Type of a value -> what a message calls it."""


def describe(
    error: ErrorDetails, document: Document, root: type[BaseModel] = Manifest, depth: int = 0
) -> Error:
    """Return the line of an error, and its text.

    ``root`` is the model of what lies ``depth`` keys down.
    """
    schema = _Schema(root, depth)
    location = error["loc"]
    if error["type"] == "missing":
        path = _written(location, document)
        line = document.line(path)
        text = _missing_key(path, location[-1], schema)
    elif error["type"] == "extra_forbidden":
        path = _written(location[:-1], document)
        key = location[-1]
        line = document.line((*path, key))
        text = _unknown_key(path, key, schema, document)
    else:
        path = _written(location, document)
        line = document.line(path)
        text = _wrong_value(error, schema.hint(path))
    return line, shortened(f"{_at(path)}{text}", _LONGEST)


@dataclass(frozen=True)
class _Schema:
    """The models that validate a file: ``root`` is the model of the value ``depth`` keys down."""

    root: type[BaseModel]
    depth: int

    def keys(self, path: Path) -> list[str]:
        """Return the keys that may be written at ``path``."""
        model = self._model(path)
        return sorted(model.model_fields) if model else []

    def hint(self, path: Path) -> str:
        """Return the description of the field at ``path``, if it has one."""
        model = self._model(path[:-1])
        if model is None or not path:
            return ""
        field = model.model_fields.get(str(path[-1]))
        if field is None:
            return ""
        return field.description or _choices(field.annotation)

    def _model(self, path: Path) -> type[BaseModel] | None:
        """Return the model that validates what is at ``path``."""
        if len(path) < self.depth:
            return None
        model: type[BaseModel] | None = self.root
        for part in path[self.depth :]:
            if isinstance(part, str) and model is not None:
                field = model.model_fields.get(part)
                model = _model_in(field.annotation) if field else None
        return model


def _choices(annotation: Any) -> str:
    """Return the values that an annotation lists, as text; "" for one that lists none."""
    if get_origin(annotation) is not Literal:
        return ""
    values = [str(value) for value in get_args(annotation)]
    return f"one of {', '.join(values)}"


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """Return the first model in an annotation such as ``list[Model] | None``."""
    arguments = get_args(annotation)
    if arguments:
        for argument in arguments:
            model = _model_in(argument)
            if model is not None:
                return model
        return None
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return None


def _written(location: Iterable[str | int], document: Document) -> Path:
    """Return pydantic's location without what isn't in the file.

    Those are union tags, and the index of a limit that isn't written as a list.
    """
    path: Path = ()
    for part in location:
        longer = (*path, part)
        if longer in document.lines:
            path = longer
    return path


def _at(path: Path) -> str:
    """Return the path as the beginning of a message; "" for the whole document."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{part}"
    return f"{text.removeprefix('.')}: " if text else ""


def _missing_key(parent: Path, key: str | int, schema: _Schema) -> str:
    text = f"{key!r} is missing; write '{key}: …'"
    hint = schema.hint((*parent, key))
    return f"{text}, {hint}" if hint else text


def _unknown_key(parent: Path, key: str | int, schema: _Schema, document: Document) -> str:
    known = schema.keys(parent)
    if parent == ("thresholds",) and schema.root is Manifest:
        known = _quantities_of_task(document, known)
    return f"unknown key {key!r}; {instead(str(key), known)}"


def _quantities_of_task(document: Document, known: Sequence[str]) -> list[str]:
    """Return the known keys of thresholds without the quantities of other tasks, its own first."""
    every = tasks()
    task = document.value.get("task")
    if not isinstance(task, str) or task not in every:
        return list(known)
    others = {name for facts in every.values() for name in facts.quantities}
    own = [name for name in every[task].quantities if name in known]
    return own + [name for name in known if name not in others]


def _wrong_value(error: ErrorDetails, hint: str) -> str:
    value = error["input"]
    context = error.get("ctx", {})
    if error["type"] == "value_error":
        return str(context["error"])
    if error["type"] == "literal_error":
        known = _quoted(context["expected"])
        usual = _ELEMENT_TYPES.get(str(value))
        advice = f"write {usual!r}" if usual in known else instead(str(value), known)
        return f"{value!r} is not known; {advice}"
    if error["type"] == "too_short":
        return f"is empty; write at least {context['min_length']}"
    if error["type"] == "too_long":
        return f"has {context['actual_length']:,} entries; write {context['max_length']:,} at most"
    pattern = PATTERNS.get(context.get("pattern", ""))
    expected = pattern or hint or _expected(error["msg"])
    found = _FOUND.get(type(value), repr(value))
    return f"found {found}; write {expected}"


def _expected(message: str) -> str:
    """Return what to write, from pydantic's "Input should be a valid list"."""
    for prefix in ("Input should be ", "a valid ", "an "):
        message = message.removeprefix(prefix)
    for name, expected in _EXPECTED.items():
        if message.startswith(name):
            return expected
    return message


def _quoted(expected: str) -> list[str]:
    """Return the values in pydantic's "'a', 'b' or 'c'"."""
    return expected.split("'")[1::2]
