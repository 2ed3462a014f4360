"""Reader of YAML 1.2 (core schema): plain values, with the line of every key and item.

PyYAML's composer is not used: it reads YAML 1.1 (``1e-5`` is a string, ``no`` is False), keeps the
last of two equal keys in silence, expands aliases without bound, and the C one crashes the process
on deep nesting. This reader builds the values from PyYAML's event stream, which does none of that.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import yaml

from pytest_mlms.text import find_control, shortened

__all__ = ["Document", "Error", "Path", "parse"]

Path = tuple[str | int, ...]
"""Keys and indices from the root of a document to a value."""

Error = tuple[int, str]
"""A line, and what is wrong there."""

_ADVICE = "check the quotes, brackets and indentation there"
_MAX_DEPTH = 40
_MAX_NODES = 100_000
_MAX_INTEGER = 2**64 - 1
_LONGEST_NUMBER = 100  # characters; Python refuses to read or to show some thousand digits
_SHOWN = 40  # characters of a value in an error
_Event = Any  # a yaml.Event, whose attributes depend on its class
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _ScalarForm(NamedTuple):
    """A form of plain scalars, and the conversion of its text to a value."""

    pattern: re.Pattern[str]
    convert: Callable[[str], Any]


def _special_float(text: str) -> float:
    return float(text.replace(".", ""))


_SCALAR_FORMS = [  # YAML 1.2.2, 10.3.2: core schema, tag resolution
    _ScalarForm(re.compile(r"|~|null|Null|NULL"), lambda text: None),
    _ScalarForm(re.compile(r"true|True|TRUE"), lambda text: True),
    _ScalarForm(re.compile(r"false|False|FALSE"), lambda text: False),
    _ScalarForm(re.compile(r"[-+]?[0-9]+"), int),
    _ScalarForm(re.compile(r"0o[0-7]+"), lambda text: int(text[2:], 8)),
    _ScalarForm(re.compile(r"0x[0-9a-fA-F]+"), lambda text: int(text[2:], 16)),
    _ScalarForm(re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?"), float),
    _ScalarForm(re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"), _special_float),
]


@dataclass
class Document:
    """The values of a file, the line of each key and item by its path, and the errors."""

    value: Any = None
    lines: dict[Path, int] = field(default_factory=dict)
    errors: list[Error] = field(default_factory=list)

    def line(self, path: Path) -> int:
        """Return the line of ``path``; of its nearest parent where it isn't there itself."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)


class _Refused(Exception):
    """The document can't be built further."""

    def __init__(self, event: _Event, text: str) -> None:
        super().__init__(text)
        self.error: Error = (_line(event), text)


def parse(text: str) -> Document:
    """Return the document in ``text``.

    Where it can't be read, the reason is in its errors, and its value is None.
    """
    document = Document()
    try:
        events = iter(yaml.parse(text, Loader=_LOADER))
        _Builder(events, document).build()
    except _Refused as refused:
        _give_up(document, refused.error)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        _give_up(document, _not_yaml(line, error.problem))
    except (yaml.YAMLError, UnicodeError) as error:
        problem = " ".join(str(error).split())
        _give_up(document, _not_yaml(1, problem))
    return document


def _not_yaml(line: int, problem: str | None) -> Error:
    return line, f"is not YAML: {problem}; {_ADVICE}"


def _give_up(document: Document, error: Error) -> None:
    document.value = None
    document.errors.append(error)


class _Anchored(NamedTuple):
    """A value that aliases may repeat, and how many nodes it has."""

    value: Any
    nodes: int


class _Builder:
    """Builds values from events.

    Every node is counted, so that neither depth nor aliases can exhaust memory.
    """

    def __init__(self, events: Iterator[_Event], document: Document) -> None:
        self._events = events
        self._document = document
        self._anchors: dict[str, _Anchored] = {}
        self._nodes = 0

    def build(self) -> None:
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                if self._document.lines:
                    raise _Refused(event, "has a second document; write one manifest a file")
                self._document.lines[()] = _line(event)
                self._document.value = self._node(next(self._events), ())

    def _node(self, event: _Event, path: Path) -> Any:
        before = self._nodes
        self._count(event, 1)
        if len(path) > _MAX_DEPTH:
            raise _Refused(event, f"is nested deeper than {_MAX_DEPTH} levels; a manifest never is")
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event)
        if event.tag not in (None, "!"):
            problem = f"has the tag {event.tag!r}"
            raise _Refused(event, f"{problem}; remove it, manifests hold plain values only")
        value = self._value(event, path)
        if event.anchor:
            self._anchors[event.anchor] = _Anchored(value, self._nodes - before)
        return value

    def _value(self, event: _Event, path: Path) -> Any:
        if isinstance(event, yaml.MappingStartEvent):
            return self._mapping(path)
        if isinstance(event, yaml.SequenceStartEvent):
            return self._sequence(path)
        return _scalar(event)

    def _mapping(self, path: Path) -> dict[str, Any]:
        values: dict[str, Any] = {}
        event = next(self._events)
        while not isinstance(event, yaml.MappingEndEvent):
            if not isinstance(event, yaml.ScalarEvent):
                raise _Refused(event, "has a key that is not a word; write 'key: value'")
            key = _text(event)
            key_path = (*path, key)
            if key in values:
                self._report_repeated(key, event, key_path)
            self._document.lines.setdefault(key_path, _line(event))
            values[key] = self._node(next(self._events), key_path)
            event = next(self._events)
        return values

    def _report_repeated(self, key: str, event: _Event, path: Path) -> None:
        first = self._document.lines[path]
        text = f"has the key {key!r} again, first on line {first}; keep one"
        self._document.errors.append((_line(event), text))

    def _sequence(self, path: Path) -> list[Any]:
        values: list[Any] = []
        event = next(self._events)
        while not isinstance(event, yaml.SequenceEndEvent):
            item_path = (*path, len(values))
            self._document.lines[item_path] = _line(event)
            values.append(self._node(event, item_path))
            event = next(self._events)
        return values

    def _alias(self, event: _Event) -> Any:
        anchored = self._anchors.get(event.anchor)
        if anchored is None:
            name = shortened(event.anchor, _SHOWN)
            raise _Refused(event, f"has the alias *{name}, which no &{name} before it defines")
        self._count(event, anchored.nodes)
        return anchored.value

    def _count(self, event: _Event, nodes: int) -> None:
        self._nodes += nodes
        if self._nodes > _MAX_NODES:
            raise _Refused(event, f"has more than {_MAX_NODES:,} values; a manifest never does")


def _scalar(event: _Event) -> Any:
    """Return the value of a scalar: its form decides, unless it is quoted or has the tag "!"."""
    is_plain = event.implicit[0] and not event.tag
    if is_plain:
        for form in _SCALAR_FORMS:
            if form.pattern.fullmatch(event.value):
                return _converted(event, form)
    return _text(event)


def _converted(event: _Event, form: _ScalarForm) -> Any:
    """Return the value of a plain scalar; a number must be one that JSON and any program have."""
    if len(event.value) <= _LONGEST_NUMBER:
        value = form.convert(event.value)
        if not isinstance(value, (int, float)):
            return value
        if math.isfinite(value) and (isinstance(value, float) or abs(value) <= _MAX_INTEGER):
            return value
    number = shortened(event.value, _SHOWN)
    problem = f"has the number {number}, which is not finite or has more than 64 bits"
    raise _Refused(event, f"{problem}; write another, or put it in quotes")


def _text(event: _Event) -> str:
    text: str = event.value
    control = find_control(text)
    if control:
        raise _Refused(event, f"has the control character {control!r} in a text; remove it")
    return text


def _line(event: _Event) -> int:
    return int(event.start_mark.line) + 1
