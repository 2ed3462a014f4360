"""Warnings and refusals of a translation: each with the line that it is about."""

from __future__ import annotations

from typing import NamedTuple

from pytest_mlms.core.errors import ManifestError


class Note(NamedTuple):
    """A warning about a line of a file."""

    line: int
    text: str


class Refused(ManifestError):
    """A manifest that can't be read or translated; ``kind`` is a short reason for tables."""

    def __init__(self, place: object, text: str, kind: str) -> None:
        super().__init__(f"{place}: {text}")
        self.kind = kind


class UnclearManifest(Exception):
    """A reason not to translate a manifest, and its line; the caller knows the file."""

    def __init__(self, line: int, text: str, kind: str) -> None:
        super().__init__(text)
        self.line = line
        self.text = text
        self.kind = kind
