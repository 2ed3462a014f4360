"""Records of a lock file: what was measured, with what software, and how fast it was."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field

from pytest_mlms.keep.lockfile.timing import TimingText
from pytest_mlms.manifest.types import Closed, as_tuple

FORMAT = 1
"""The format of the file: raised when an older pytest-mlms would misread it."""

_DIGITS = 16  # of a digest: 64 bits tell two files apart; the manifest has all of them

_DIGEST = re.compile(rf"[0-9a-f]{{{_DIGITS}}}")


def _checked_digest(text: str) -> str:
    if not _DIGEST.fullmatch(text):
        raise ValueError(f"{text!r} is no digest; write {_DIGITS} hexadecimal digits")
    return text


def _checked_variable(text: str) -> str:
    if "=" not in text.lstrip("="):
        raise ValueError(f"{text!r} is no variable; write NAME=VALUE")
    return text


_Digest = Annotated[str, AfterValidator(_checked_digest)]
_Variable = Annotated[str, AfterValidator(_checked_variable)]
_Count = Annotated[int, Field(ge=0)]


def short_digest(sha256: str) -> str:
    """Return the part of a digest that a lock has."""
    return sha256.removeprefix("sha256:")[:_DIGITS]


class LockedStack(Closed):
    """The exact software of a stack: its Python, and its packages in order, a line each.

    ``variables`` are those of the caller that change what is measured, as NAME=VALUE.
    """

    python: str
    packages: Annotated[tuple[str, ...], BeforeValidator(as_tuple)]
    variables: Annotated[tuple[_Variable, ...], BeforeValidator(as_tuple)] = ()


class LockedItem(Closed):
    """An item: the key of its stack, the files that it used, and its answers.

    ``variant`` is that of its model, "" where it has none, and in locks of earlier versions.
    ``predictions`` is the digest of the answers, of which ``right`` of ``inputs`` are right.
    ``accuracy`` has the quantities of a task without right answers. ``layers`` is the digest of the
    names and types of the traced layers, and ``definition`` that of what the item measures.
    """

    stack: str
    manifest: str
    framework: str
    device: str
    variant: str = ""
    model: dict[str, _Digest]
    dataset: _Digest | None = None
    predictions: _Digest | None = None
    right: _Count | None = None
    inputs: _Count | None = None
    accuracy: dict[str, float] = Field(default={})
    layers: _Digest | None = None
    definition: _Digest | None = None


Timings = dict[str, dict[str, dict[str, TimingText]]]
"""Class of the machine -> node id -> quantity -> timing."""


class Lock(Closed):
    """A lock file: stacks by key, items by node id, and advisory timings by class of machine."""

    format: int = FORMAT
    stacks: dict[str, LockedStack] = Field(default={})
    items: dict[str, LockedItem] = Field(default={})
    timings: Timings = Field(default={})
