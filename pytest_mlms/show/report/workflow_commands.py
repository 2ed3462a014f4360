"""Workflow commands of GitHub Actions: lines of the log that become annotations.

The escapes are those of actions/toolkit (packages/core/src/command.ts).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pytest_mlms.core.text import visible

Level = Literal["error", "warning"]

_DATA = {"%": "%25", "\r": "%0D", "\n": "%0A"}
"""Character -> its escape in a message."""

_PROPERTY = {**_DATA, ":": "%3A", ",": "%2C"}
"""Character -> its escape in a property."""


def workflow_command(level: Level, message: str, properties: Mapping[str, str]) -> str:
    """Return a command that annotates a line; no text in it can begin a command of its own."""
    pairs = []
    for name, value in properties.items():
        pairs.append(f"{name}={_escape(value, _PROPERTY)}")
    command = f"{level} {','.join(pairs)}".rstrip()
    return f"::{command}::{_escape(message, _DATA)}"


def _escape(text: str, escapes: Mapping[str, str]) -> str:
    table = str.maketrans({**escapes})
    return visible(text).translate(table)
