"""Edits of YAML text at the place of a key; all other text, with its comments, stays as it is.

An edited text is read again: its values must be those that the edit was meant to make.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from pytest_mlms.manifest import yaml12
from pytest_mlms.manifest.yaml12 import Path

_Event = Any  # a yaml.Event, whose attributes depend on its class
_LINE_END = re.compile(r"\r\n|\r|\n|\Z")


class CannotEdit(Exception):
    """The text is written in a form that isn't edited here, such as an alias."""


@dataclass
class _Node:
    """A value in a text: where it begins and ends, and what it consists of.

    ``start`` and ``end`` are places in the text, ``column`` is that of its first key.
    """

    start: int
    end: int
    column: int = 0
    is_flow: bool = False
    is_alias: bool = False
    keys: dict[str | int, _Node] = field(default_factory=dict)


def add_key(text: str, path: Path, key: str, value: str, after: str) -> str:
    """Return a text with ``key: value`` in the mapping at ``path``, behind its key ``after``.

    In a block it is a line of its own, behind the line on which the value of ``after`` ends. Raises
    CannotEdit.
    """
    owner = _node_at(text, path)
    neighbour = owner.keys.get(after)
    if neighbour is None or neighbour.is_alias:
        raise CannotEdit
    if owner.is_flow:
        edited = f"{text[: neighbour.end]}, {key}: {value}{text[neighbour.end :]}"
    else:
        edited = _with_line(text, neighbour.end, f"{' ' * owner.column}{key}: {value}")
    return _checked(text, edited, path, key, value)


def replace_value(text: str, path: Path, value: str) -> str:
    """Return a text with another value at ``path``. Raises CannotEdit."""
    node = _node_at(text, path)
    if node.is_alias:
        raise CannotEdit
    blank = "" if node.start < node.end or text[node.start - 1 : node.start] == " " else " "
    edited = f"{text[: node.start]}{blank}{value}{text[node.end :]}"
    return _checked(text, edited, path[:-1], str(path[-1]), value)


def _with_line(text: str, end: int, line: str) -> str:
    """Return a text with a line more, behind the one that ``end`` is on."""
    at_line_start = end > 0 and text[end - 1] in "\r\n"  # behind a block of text
    first_end = _LINE_END.search(text)
    newline = (first_end[0] if first_end else "") or "\n"
    if at_line_start:
        return f"{text[:end]}{line}{newline}{text[end:]}"
    found = _LINE_END.search(text, end)
    place = found.end() if found else len(text)
    before = text[:place]
    if not before.endswith(("\r", "\n")):
        before += newline
    return f"{before}{line}{newline}{text[place:]}"


def _checked(text: str, edited: str, path: Path, key: str, value: str) -> str:
    """Return the edited text; raises CannotEdit unless it says what was meant."""
    expected = yaml12.parse(text).value
    owner = expected
    for part in path:
        owner = owner[part]
    owner[key] = yaml12.parse(value).value
    document = yaml12.parse(edited)
    if document.errors or document.value != expected:
        raise CannotEdit
    return edited


def _node_at(text: str, path: Path) -> _Node:
    """Return the node at ``path``; raises CannotEdit where it isn't written there."""
    node = _composed(text)
    for part in path:
        found = node.keys.get(part)
        if found is None:
            raise CannotEdit
        node = found
    return node


def _composed(text: str) -> _Node:
    """Return the only document of a text that ``yaml12`` has read without an error."""
    events = iter(yaml.parse(text, Loader=yaml.SafeLoader))
    for event in events:
        if isinstance(event, yaml.DocumentStartEvent):
            return _compose(next(events), events)
    raise CannotEdit


def _compose(event: _Event, events: Iterator[_Event]) -> _Node:
    node = _Node(event.start_mark.index, event.end_mark.index)
    node.is_alias = isinstance(event, yaml.AliasEvent)
    if isinstance(event, yaml.MappingStartEvent):
        _compose_mapping(node, event, events)
    elif isinstance(event, yaml.SequenceStartEvent):
        _compose_sequence(node, event, events)
    return node


def _compose_mapping(node: _Node, event: _Event, events: Iterator[_Event]) -> None:
    node.is_flow = bool(event.flow_style)
    node.column = event.start_mark.column
    for key in events:
        if isinstance(key, yaml.MappingEndEvent):
            node.end = _end_of(key)
            return
        if not node.keys:
            node.column = key.start_mark.column
        node.keys[key.value] = _compose(next(events), events)


def _compose_sequence(node: _Node, event: _Event, events: Iterator[_Event]) -> None:
    node.is_flow = bool(event.flow_style)
    for item in events:
        if isinstance(item, yaml.SequenceEndEvent):
            node.end = _end_of(item)
            return
        node.keys[len(node.keys)] = _compose(item, events)


def _end_of(event: _Event) -> int:
    return int(event.end_mark.index)
