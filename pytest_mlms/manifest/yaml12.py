"""YAML 1.2 core schema to plain values, with the line of every key and item.

PyYAML's composer is not used: it reads YAML 1.1 (``1e-5`` is a string, ``no`` is False), keeps the
last of two equal keys in silence, expands aliases without bound, and the C one crashes the process
on deep nesting. Its event stream does none of that, and this builder takes it from there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

__all__ = ["Document", "Path", "parse"]

Path = tuple[str | int, ...]

_CHECK = "check the quotes, brackets and indentation there"
_MAX_DEPTH = 40
_MAX_NODES = 100_000
_Node = Any  # a yaml.Event, whose attributes depend on its class
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_SCALARS: list[tuple[re.Pattern[str], Any]] = [  # YAML 1.2.2, 10.3.2: core schema, tag resolution
    (re.compile(r"|~|null|Null|NULL"), lambda text: None),
    (re.compile(r"true|True|TRUE|false|False|FALSE"), lambda text: text.lower() == "true"),
    (re.compile(r"[-+]?[0-9]+"), int),
    (re.compile(r"0o[0-7]+"), lambda text: int(text[2:], 8)),
    (re.compile(r"0x[0-9a-fA-F]+"), lambda text: int(text[2:], 16)),
    (re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?"), float),
    (
        re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"),
        lambda text: float(text.replace(".", "")),
    ),
]


@dataclass
class Document:
    """The values, the line of each key and item by its path, and the errors, as (line, text) pairs."""

    value: Any = None
    lines: dict[Path, int] = field(default_factory=dict)
    errors: list[tuple[int, str]] = field(default_factory=list)

    def line(self, path: Path) -> int:
        """Return the line of ``path``; of its nearest parent where it isn't there itself."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)


class _Refused(Exception):
    """The document can't be built further: (line, text)."""


def parse(text: str) -> Document:
    """Return the document in ``text``.

    What can't be read is in its errors, and its value is then None.
    """
    document = Document()
    try:
        _Builder(iter(yaml.parse(text, Loader=_LOADER)), document).build()
    except _Refused as refused:
        document.value = None
        document.errors.append(refused.args[0])
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        document.value = None
        document.errors.append(
            (mark.line + 1 if mark else 1, f"is not YAML: {error.problem}; {_CHECK}")
        )
    except (yaml.YAMLError, UnicodeError) as error:
        document.value = None
        document.errors.append((1, f"is not YAML: {' '.join(str(error).split())}; {_CHECK}"))
    return document


class _Builder:
    """Turns events into values.

    Every node is counted, so that neither depth nor aliases can blow up.
    """

    def __init__(self, events: Iterator[_Node], document: Document) -> None:
        self.events = events
        self.document = document
        self.anchors: dict[str, tuple[Any, int]] = {}
        self.nodes = 0

    def build(self) -> None:
        for event in self.events:
            if isinstance(event, yaml.DocumentStartEvent):
                if self.document.lines:
                    raise _Refused(
                        (_line(event), "has a second document; write one manifest a file")
                    )
                self.document.lines[()] = _line(event)
                self.document.value = self.node(next(self.events), ())

    def node(self, event: _Node, path: Path) -> Any:
        before = self.nodes
        self.count(event, 1)
        if len(path) > _MAX_DEPTH:
            raise _Refused(
                (_line(event), f"is nested deeper than {_MAX_DEPTH} levels; a manifest never is")
            )
        if isinstance(event, yaml.AliasEvent):
            return self.alias(event)
        if event.tag not in (None, "!"):
            raise _Refused(
                (
                    _line(event),
                    f"has the tag {event.tag!r}; remove it, manifests hold plain values only",
                )
            )
        value = self.value(event, path)
        if event.anchor:
            self.anchors[event.anchor] = (value, self.nodes - before)
        return value

    def value(self, event: _Node, path: Path) -> Any:
        if isinstance(event, yaml.MappingStartEvent):
            return self.mapping(path)
        if isinstance(event, yaml.SequenceStartEvent):
            return self.sequence(path)
        return _scalar(event)

    def mapping(self, path: Path) -> dict[str, Any]:
        made: dict[str, Any] = {}
        while not isinstance(event := next(self.events), yaml.MappingEndEvent):
            if not isinstance(event, yaml.ScalarEvent):
                raise _Refused((_line(event), "has a key that is not a word; write 'key: value'"))
            key, here = event.value, (*path, event.value)
            if key in made:
                first = self.document.lines[here]
                self.document.errors.append(
                    (_line(event), f"has the key {key!r} again, first on line {first}; keep one")
                )
            self.document.lines.setdefault(here, _line(event))
            made[key] = self.node(next(self.events), here)
        return made

    def sequence(self, path: Path) -> list[Any]:
        made: list[Any] = []
        while not isinstance(event := next(self.events), yaml.SequenceEndEvent):
            here = (*path, len(made))
            self.document.lines[here] = _line(event)
            made.append(self.node(event, here))
        return made

    def alias(self, event: _Node) -> Any:
        if event.anchor not in self.anchors:
            raise _Refused(
                (
                    _line(event),
                    f"has the alias *{event.anchor}, which no &{event.anchor} before it defines",
                )
            )
        value, size = self.anchors[event.anchor]
        self.count(event, size)
        return value

    def count(self, event: _Node, nodes: int) -> None:
        self.nodes += nodes
        if self.nodes > _MAX_NODES:
            raise _Refused(
                (_line(event), f"has more than {_MAX_NODES:,} values; a manifest never does")
            )


def _scalar(event: _Node) -> Any:
    if (
        event.implicit[0] and not event.tag
    ):  # plain, so its form decides; what is quoted or has the tag ! is text
        for pattern, convert in _SCALARS:
            if pattern.fullmatch(event.value):
                return convert(event.value)
    return event.value


def _line(event: _Node) -> int:
    return int(event.start_mark.line) + 1
