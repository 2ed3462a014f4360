"""Text of native manifests: keys in their order, with a comment above what was decided."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_mlms.draft.parts import scalar

__all__ = ["Block", "Key", "Part", "Step", "text_of"]

_WIDTH = 100  # columns
_INDENT = "  "


@dataclass(frozen=True)
class Step:
    """A step with its parameters, and why it is there if the original doesn't say it."""

    name: str
    parameters: Mapping[str, Any] | None = None
    why: str = ""

    @property
    def content(self) -> Any:
        """The step as YAML has it."""
        return {self.name: dict(self.parameters)} if self.parameters else self.name


@dataclass(frozen=True)
class Key:
    """A key and its value: a scalar, a list or a mapping in one line, parts, steps, or a block."""

    name: str
    value: Any
    why: str = ""


Part = Sequence[Key]
"""An entry of a list: its keys."""


@dataclass(frozen=True)
class Block:
    """A long text."""

    text: str


def text_of(keys: Sequence[Key]) -> str:
    """Return the text of a manifest."""
    return "\n".join([*_lines_of_keys(keys, ""), ""])


def _lines_of_keys(keys: Sequence[Key], indent: str) -> Iterator[str]:
    for key in keys:
        yield from _comment(key.why, indent)
        yield from _lines_of_value(key, indent)


def _lines_of_value(key: Key, indent: str) -> Iterator[str]:
    value = key.value
    if isinstance(value, Block):
        yield f"{indent}{key.name}: >-"
        yield from _wrapped(value.text, f"{indent}{_INDENT}")
    elif _is_list_of(value, Step):
        yield f"{indent}{key.name}:"
        for step in value:
            yield from _comment(step.why, f"{indent}{_INDENT}")
            yield f"{indent}{_INDENT}- {_flow(step.content).removeprefix('{').removesuffix('}')}"
    elif _is_list_of(value, Sequence):
        yield f"{indent}{key.name}:"
        for part in value:
            yield from _lines_of_part(part, f"{indent}{_INDENT}")
    else:
        yield f"{indent}{key.name}: {_flow(value)}"


def _is_list_of(value: Any, kind: type) -> bool:
    return isinstance(value, tuple) and bool(value) and isinstance(value[0], kind)


def _lines_of_part(part: Part, indent: str) -> Iterator[str]:
    """Yield the lines of an entry; the dash stands before the first line that is no comment."""
    is_first = True
    for line in _lines_of_keys(part, f"{indent}{_INDENT}"):
        if is_first and not line.lstrip().startswith("#"):
            yield f"{indent}- {line.lstrip()}"
            is_first = False
        elif is_first:
            yield f"{indent}{line.lstrip()}"
        else:
            yield line


def _comment(why: str, indent: str) -> Iterator[str]:
    return _wrapped(why, f"{indent}# ") if why else iter(())


def _wrapped(text: str, start: str) -> Iterator[str]:
    """Yield the words of a text in lines; no line break of a text survives it."""
    line = ""
    for word in text.split():
        if line and len(start) + len(line) + 1 + len(word) > _WIDTH:
            yield f"{start}{line}"
            line = word
        else:
            line = f"{line} {word}" if line else word
    yield f"{start}{line}"


def _flow(value: Any) -> str:
    """Return a value in one line."""
    if isinstance(value, Mapping):
        return (
            "{" + ", ".join(f"{_quoted(name)}: {_flow(part)}" for name, part in value.items()) + "}"
        )
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_flow(part) for part in value)}]"
    if isinstance(value, float):
        return _number(value)
    return _scalar(value)


def _number(value: float) -> str:
    """Return a number, whole ones without a point."""
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)


@functools.lru_cache(maxsize=4096)
def _quoted(text: str) -> str:
    return scalar(text)


def _scalar(value: Any) -> str:
    return _quoted(value) if isinstance(value, str) else scalar(value)
