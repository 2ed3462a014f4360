"""Parts of a translation: keys of a native manifest as text, and warnings about the original.

Keys are in their order, with a comment above what was decided."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pytest_mlms.author.draft.parts import scalar
from pytest_mlms.author.legacy.digests import DigestOfFile
from pytest_mlms.author.legacy.records import Note

_WIDTH = 100  # columns
_INDENT = "  "


@dataclass(frozen=True)
class Step:
    """A step with its parameters, and why it is there if the original doesn't say it.

    ``line`` is that of the original, 0 for the line of what has the step.
    """

    name: str
    parameters: Mapping[str, Any] | None = None
    why: str = ""
    line: int = 0

    @property
    def content(self) -> Any:
        """The step as YAML has it."""
        return {self.name: dict(self.parameters)} if self.parameters else self.name


@dataclass(frozen=True)
class Key:
    """A key and its value: a scalar, a list or a mapping in one line, parts, steps, or a block.

    ``line`` is that of the original, 0 for the line of what has the key.
    """

    name: str
    value: Any
    why: str = ""
    line: int = 0


Part = Sequence[Key]
"""An entry of a list: its keys."""


@dataclass(frozen=True)
class Block:
    """A long text."""

    text: str


class NativeLine(NamedTuple):
    """A line of a native manifest, and the line of the original that it is from."""

    text: str
    line: int


def native_lines(keys: Sequence[Key]) -> list[NativeLine]:
    """Return the lines of a manifest."""
    return list(_lines_of_keys(keys, "", 1))


def decisions_of(keys: Sequence[Key], line: int = 1) -> Iterator[NativeLine]:
    """Yield what was decided rather than copied: the name of a key or step, and why."""
    for key in keys:
        own = key.line or line
        if key.why:
            yield NativeLine(f"{key.name}: {key.why}", own)
        if _is_list_of(key.value, Step):
            for step in key.value:
                if step.why:
                    yield NativeLine(f"{step.name}: {step.why}", step.line or own)
        elif _is_list_of(key.value, Sequence):
            for part in key.value:
                yield from decisions_of(part, own)


def _lines_of_keys(keys: Sequence[Key], indent: str, line: int) -> Iterator[NativeLine]:
    for key in keys:
        own = key.line or line
        for text in _comment(key.why, indent):
            yield NativeLine(text, own)
        yield from _lines_of_value(key, indent, own)


def _lines_of_value(key: Key, indent: str, line: int) -> Iterator[NativeLine]:
    value = key.value
    if isinstance(value, Block):
        yield NativeLine(f"{indent}{key.name}: >-", line)
        for text in _wrapped(value.text, f"{indent}{_INDENT}"):
            yield NativeLine(text, line)
    elif _is_list_of(value, Step):
        yield NativeLine(f"{indent}{key.name}:", line)
        for step in value:
            yield from _lines_of_step(step, f"{indent}{_INDENT}", step.line or line)
    elif _is_list_of(value, Sequence):
        yield NativeLine(f"{indent}{key.name}:", line)
        for part in value:
            yield from _lines_of_part(part, f"{indent}{_INDENT}", line)
    else:
        yield NativeLine(f"{indent}{key.name}: {_flow(value)}", line)


def _lines_of_step(step: Step, indent: str, line: int) -> Iterator[NativeLine]:
    for text in _comment(step.why, indent):
        yield NativeLine(text, line)
    content = _flow(step.content).removeprefix("{").removesuffix("}")
    yield NativeLine(f"{indent}- {content}", line)


def _is_list_of(value: Any, kind: type) -> bool:
    return isinstance(value, tuple) and bool(value) and isinstance(value[0], kind)


def _lines_of_part(part: Part, indent: str, line: int) -> Iterator[NativeLine]:
    """Yield the lines of an entry; the dash stands before the first line that is no comment."""
    is_first = True
    for text, own in _lines_of_keys(part, f"{indent}{_INDENT}", line):
        if is_first and not text.lstrip().startswith("#"):
            yield NativeLine(f"{indent}- {text.lstrip()}", own)
            is_first = False
        elif is_first:
            yield NativeLine(f"{indent}{text.lstrip()}", own)
        else:
            yield NativeLine(text, own)


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


@dataclass(frozen=True)
class TensorName:
    """The name of an input or output in the model, or else its position and a name of ours.

    ``why`` says why it has it if the original doesn't.
    """

    text: str
    position: int | None = None
    why: str = ""

    def keys(self, line: int, comment: str = "") -> list[Key]:
        """Return the keys that say it, from a line of the original, with a comment above."""
        why = "; ".join(filter(None, [comment, self.why]))
        keys = [Key("name", self.text, why, line)]
        if self.position is not None:
            keys.append(Key("position", self.position, line=line))
        return keys


@dataclass(frozen=True)
class TranslatedInput:
    """An input; ``axes`` are its sizes behind the batch, None for a free one."""

    name: TensorName
    element_type: str
    axes: Sequence[int | None] | None
    part: Part
    notes: Sequence[Note] = ()


@dataclass(frozen=True)
class TranslatedOutput:
    """An output with its steps; ``why`` is a comment above it."""

    name: TensorName
    type: str
    steps: Sequence[Step] = ()
    why: str = ""


@dataclass(frozen=True)
class TranslatedOutputs:
    """The outputs of a model, and the task of the native manifest."""

    task: str
    outputs: Sequence[TranslatedOutput]
    notes: Sequence[Note] = ()
    digests: Sequence[DigestOfFile] = ()


@dataclass(frozen=True)
class TranslatedFiles:
    """The framework that runs the files, its versions, and the keys that name the files."""

    predictor: str
    part: Part
    digests: Sequence[DigestOfFile] = ()
    notes: Sequence[Note] = ()


@dataclass(frozen=True)
class Translation:
    """The lines of a native manifest, what was decided for it, and the warnings.

    ``has_accuracy`` is True if its outputs are scored once it has a dataset. ``code`` are the keys
    of the original whose Python agents must run.
    """

    lines: Sequence[NativeLine]
    has_accuracy: bool
    decisions: Sequence[Note] = ()
    code: Sequence[str] = ()
    digests: Sequence[DigestOfFile] = ()
    notes: Sequence[Note] = ()

    @property
    def text(self) -> str:
        """The text of the native manifest."""
        return "\n".join([*(line.text for line in self.lines), ""])
