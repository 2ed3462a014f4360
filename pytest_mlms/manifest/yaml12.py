"""Reader of YAML 1.2 (core schema): plain values, with the line of every key and item.

PyYAML's composer is not used: it reads YAML 1.1 (``1e-5`` is a string, ``no`` is False), keeps the
last of two equal keys in silence, expands aliases without bound, and the C one crashes the process
on deep nesting. This reader builds the values from PyYAML's event stream, which does none of that.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import yaml

from pytest_mlms.core.text import find_control, shortened

Path = tuple[str | int, ...]
"""Keys and indices from the root of a document to a value."""

Error = tuple[int, str]
"""A line, and what is wrong there."""

_ADVICE = "check the quotes, brackets and indentation there"
_MAX_DEPTH = 40
_TOO_DEEP = f"is nested deeper than {_MAX_DEPTH} levels; a manifest never is"
_MAX_NODES = 100_000
_MAX_INTEGER = 2**64 - 1
_LONGEST_NUMBER = 100  # characters; Python refuses to read or to show some thousand digits
_SHOWN = 40  # characters of a value in an error
_Event = Any  # a yaml.Event, whose attributes depend on its class
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def _special_float(text: str) -> float:
    return float(text.replace(".", ""))


_SCALAR_FORM = re.compile(  # YAML 1.2.2, 10.3.2: core schema, tag resolution
    r"""(?P<null> | ~ | null | Null | NULL)
      | (?P<true> true | True | TRUE)
      | (?P<false> false | False | FALSE)
      | (?P<decimal> [-+]?[0-9]+)
      | (?P<octal> 0o[0-7]+)
      | (?P<hexadecimal> 0x[0-9a-fA-F]+)
      | (?P<float> [-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?)
      | (?P<special> [-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))""",
    re.VERBOSE,
)
"""The forms of plain scalars; other ones are text."""

_CONVERSIONS: dict[str, Callable[[str], Any]] = {
    "null": lambda text: None,
    "true": lambda text: True,
    "false": lambda text: False,
    "decimal": int,
    "octal": lambda text: int(text[2:], 8),
    "hexadecimal": lambda text: int(text[2:], 16),
    "float": float,
    "special": _special_float,
}


class Lines:
    """The line of each key and item of a document, by its path.

    Paths are kept as text, their parts after a NUL each, which no text of a document has: a mapping
    of text to numbers is no work for the garbage collector, however many documents there are.
    """

    def __init__(self) -> None:
        self._lines: dict[str, int] = {}

    def __contains__(self, path: Path) -> bool:
        return _as_text(path) in self._lines

    def add(self, path: str, line: int) -> int:
        """Add a path as text, unless it is there; return its line."""
        return self._lines.setdefault(path, line)

    def moved(self, lines: Sequence[int]) -> Lines:
        """Return the lines in another file, which ``lines`` has for each line of this one."""
        moved = Lines()
        for path, line in self._lines.items():
            moved.add(path, lines[min(line, len(lines)) - 1])
        return moved

    def nearest(self, path: Path) -> int:
        """Return the line of ``path``; of its nearest parent where it isn't there itself."""
        while path and path not in self:
            path = path[:-1]
        return self._lines.get(_as_text(path), 1)


def joined(path: str, part: str | int) -> str:
    """Return the path, as text, of a key or an item of what is at ``path``."""
    return f"{path}\0{part}"


def _as_text(path: Path) -> str:
    text = ""
    for part in path:
        text = joined(text, part)
    return text


class WrittenFloat(float):
    """A number and how it is written: 1.10 is the number of 1.1, and another version."""

    text: str

    @classmethod
    def of(cls, text: str) -> WrittenFloat:
        """Return the number that a text says."""
        number = cls(text)
        number.text = text
        return number


class Repeated(NamedTuple):
    """A key that a mapping has again: the mapping's path, the key, the value before, and lines."""

    path: Path
    key: str
    earlier: Any
    line: int
    first_line: int


@dataclass
class Document:
    """The values of a file, the lines of its keys and items, and the errors.

    Each of the ``repeated`` keys is among the errors, too. Its last value counts.
    """

    value: Any = None
    lines: Lines = field(default_factory=Lines)
    errors: list[Error] = field(default_factory=list)
    repeated: list[Repeated] = field(default_factory=list)

    def line(self, path: Path) -> int:
        """Return the line of ``path``; of its nearest parent where it isn't there itself."""
        return self.lines.nearest(path)


class _Refused(Exception):
    """The document can't be built further."""

    def __init__(self, event: _Event, text: str) -> None:
        super().__init__(text)
        self.error: Error = (_line(event), text)


def parse(text: str, keep_written: bool = False) -> Document:
    """Return the document in ``text``.

    Where it can't be read, the reason is in its errors, and its value is None. With
    ``keep_written`` fractions are WrittenFloat, and numbers of more than 64 bits are texts.
    """
    document = Document()
    try:
        events = iter(yaml.parse(text, Loader=_LOADER))
        _Builder(events, document, keep_written).build()
    except _Refused as refused:
        _give_up(document, refused.error)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        _give_up(document, _not_yaml(mark.line + 1 if mark else 1, error.problem))
    except (yaml.YAMLError, UnicodeError) as error:
        problem = " ".join(str(error).split())
        _give_up(document, _not_yaml(1, problem))
    return document


def _not_yaml(line: int, problem: str | None) -> Error:
    if problem and "nesting depth" in problem:  # libyaml's own limit, since PyYAML 6.0.4
        return line, _TOO_DEEP
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

    def __init__(self, events: Iterator[_Event], document: Document, keep_written: bool) -> None:
        self._events = events
        self._document = document
        self._keep_written = keep_written
        self._lines = document.lines
        self._anchors: dict[str, _Anchored] = {}
        self._nodes = 0

    def build(self) -> None:
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                if () in self._lines:
                    raise _Refused(event, "has a second document; write one manifest a file")
                self._lines.add("", _line(event))
                self._document.value = self._node(next(self._events), "", 0)

    def _node(self, event: _Event, path: str, depth: int) -> Any:
        before = self._nodes
        self._count(event, 1)
        if depth > _MAX_DEPTH:
            raise _Refused(event, _TOO_DEEP)
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event)
        if event.tag not in (None, "!"):
            problem = f"has the tag {event.tag!r}"
            raise _Refused(event, f"{problem}; remove it, manifests hold plain values only")
        value = self._value(event, path, depth)
        if event.anchor:
            self._anchors[event.anchor] = _Anchored(value, self._nodes - before)
        return value

    def _value(self, event: _Event, path: str, depth: int) -> Any:
        if isinstance(event, yaml.ScalarEvent):
            return _written(event) if self._keep_written else _scalar(event)
        if isinstance(event, yaml.MappingStartEvent):
            return self._mapping(path, depth + 1)
        return self._sequence(path, depth + 1)

    def _mapping(self, path: str, depth: int) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for event in self._events:
            if isinstance(event, yaml.MappingEndEvent):
                break
            if not isinstance(event, yaml.ScalarEvent):
                raise _Refused(event, "has a key that is not a word; write 'key: value'")
            key = _text(event)
            key_path = joined(path, key)
            first = self._lines.add(key_path, _line(event))
            if key in values:
                self._add_repeated(path, key, values[key], _line(event), first)
            values[key] = self._node(next(self._events), key_path, depth)
        return values

    def _add_repeated(self, path: str, key: str, earlier: Any, line: int, first: int) -> None:
        text = f"has the key {key!r} again, first on line {first}; keep one"
        self._document.errors.append((line, text))
        parts = tuple(path.split("\0")[1:])
        self._document.repeated.append(Repeated(parts, key, earlier, line, first))

    def _sequence(self, path: str, depth: int) -> list[Any]:
        values: list[Any] = []
        for event in self._events:
            if isinstance(event, yaml.SequenceEndEvent):
                break
            item_path = joined(path, len(values))
            self._lines.add(item_path, _line(event))
            values.append(self._node(event, item_path, depth))
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
    form = _SCALAR_FORM.fullmatch(event.value) if is_plain else None
    if form is None or form.lastgroup is None:
        return _text(event)
    return _converted(event, _CONVERSIONS[form.lastgroup])


def _written(event: _Event) -> Any:
    """Return the value of a scalar, of a fraction with its text.

    A number that is none here, such as a digest of decimal digits, is a text.
    """
    try:
        value = _scalar(event)
    except _Refused:
        return _text(event)
    return WrittenFloat.of(event.value) if isinstance(value, float) else value


def _converted(event: _Event, convert: Callable[[str], Any]) -> Any:
    """Return the value of a plain scalar; a number must be one that JSON and any program have."""
    if len(event.value) <= _LONGEST_NUMBER:
        value = convert(event.value)
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
