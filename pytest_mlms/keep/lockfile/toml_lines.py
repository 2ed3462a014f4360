"""Lines of the tables and keys of a TOML file, which its parser doesn't keep."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from pytest_mlms.core.text import find_control
from pytest_mlms.manifest.yaml12 import Document, joined

Keys = tuple[str, ...]
"""The keys from the root to a value."""

_NAME = r'"(?:[^"\\\n]|\\.)*"|[\w-]+'
_HEADER = re.compile(rf"\s*\[(?P<table>{_NAME})(\.(?P<key>{_NAME}))?\]\s*$")
_KEY = re.compile(rf"\s*(?P<key>{_NAME})\s*=")


def document_of(value: Mapping[str, Any], text: str) -> Document:
    """Return the values of a TOML file with their lines, as far as a key begins a line.

    A control character in a text is one of its errors.
    """
    document = Document(value)
    root = _Place(keys=(), path="", line=1)
    _add(document, _lines_of(text), root, value)
    return document


class _Place(NamedTuple):
    """The place of a value: its keys, its path in the document, and the nearest known line."""

    keys: Keys
    path: str
    line: int

    def inner(self, key: str | int) -> _Place:
        """Return the place of a part of the value."""
        keys = (*self.keys, str(key))
        return _Place(keys, joined(self.path, key), self.line)


def _add(document: Document, lines: Mapping[Keys, int], place: _Place, value: Any) -> None:
    """Add the line of a value and of its parts: that of the table for one without its own."""
    line = lines.get(place.keys, place.line)
    place = place._replace(line=line)
    document.lines.add(place.path, line)
    for text in (*place.keys[-1:], value):
        _check_text(document, text, line)
    for key, part in _parts(value):
        _add(document, lines, place.inner(key), part)


def _check_text(document: Document, text: Any, line: int) -> None:
    """Add an error for a text with a control character."""
    if not isinstance(text, str):
        return
    control = find_control(text)
    if control:
        problem = f"has the control character {control!r} in a text; remove it"
        document.errors.append((line, problem))


def _parts(value: Any) -> Iterable[tuple[str | int, Any]]:
    if isinstance(value, Mapping):
        return value.items()
    if isinstance(value, list):
        return enumerate(value)
    return ()


def _lines_of(text: str) -> dict[Keys, int]:
    """Return the first line of each table and key."""
    lines: dict[Keys, int] = {}
    table: Keys = ()
    for number, line in enumerate(text.split("\n"), start=1):
        header = _HEADER.match(line)
        found = _KEY.match(line)
        if header:
            names = [name for name in header.group("table", "key") if name]
            table = tuple(map(_plain, names))
            lines.setdefault(table[:1], number)
            lines.setdefault(table, number)
        elif found:
            key = _plain(found["key"])
            lines.setdefault((*table, key), number)
    return lines


def _plain(key: str) -> str:
    """Return a key without its quotes."""
    if not key.startswith('"'):
        return key
    try:
        return str(json.loads(key))
    except ValueError:
        return key
