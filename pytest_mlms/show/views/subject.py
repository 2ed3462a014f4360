"""Views of what an item evaluates: its manifest, model, dataset, stack and reference.

The fields are those of docs/results.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = [
    "BaselineView",
    "DatasetView",
    "LaunchView",
    "ManifestView",
    "ModelView",
    "OriginalView",
    "ReferenceView",
    "RemarkView",
    "StackView",
]


@dataclass(frozen=True)
class ManifestView:
    """A manifest: its file, and the name and version of its model."""

    name: str
    path: str = ""
    version: str = ""


@dataclass(frozen=True)
class RemarkView:
    """A text about a line of a file."""

    place: str = ""
    text: str = ""


@dataclass(frozen=True)
class OriginalView:
    """A manifest of MLModelScope: what was decided about it, and what is wrong in it."""

    dialect: str = ""
    decisions: tuple[RemarkView, ...] = ()
    warnings: tuple[RemarkView, ...] = ()


@dataclass(frozen=True)
class ModelView:
    """A model's framework as the manifest constrains it, and the digest of each file by role."""

    framework: str = ""
    sha256: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class DatasetView:
    """A dataset."""

    name: str
    version: str = ""
    sha256: str = ""


@dataclass(frozen=True)
class StackView:
    """A stack, with the threads and cores that were asked for."""

    name: str
    threads: int | None = None
    cores: tuple[int, ...] = ()


@dataclass(frozen=True)
class BaselineView:
    """The stack that an upgrade is compared with.

    ``variant`` and ``options`` are those of its model, where they are others than the candidate's.
    """

    name: str
    threads: int | None = None
    variant: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class LaunchView:
    """The command that starts agents, and their exact packages.

    ``lock`` has those of an environment made for them, ``packages`` those of an interpreter that
    was there.
    """

    command: tuple[str, ...] = ()
    lock: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()

    @property
    def exact(self) -> tuple[str, ...]:
        """The exact packages, a line each; none where they aren't known."""
        return self.lock or self.packages


@dataclass(frozen=True)
class ReferenceView:
    """The reference that outputs agree with."""

    stack: str = ""
    framework: str = ""
    device: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
