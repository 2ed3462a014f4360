"""Digests that manifests have for the same file: where two differ, one of them is wrong."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from pytest_mlms.author.legacy.records import Note
from pytest_mlms.core.records import Place
from pytest_mlms.manifest.load import shown


class DigestOfFile(NamedTuple):
    """An address, the digest that a manifest has for it, and the line of the digest."""

    source: str
    digest: str
    line: int


class KnownDigests:
    """The digests of the manifests of an import, each with the place where it was first."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, Place]] = {}

    def add(self, path: Path, files: Iterable[DigestOfFile]) -> Iterator[Note]:
        """Yield a warning for each file that an earlier manifest has another digest for."""
        for file in files:
            place = Place(shown(path), file.line)
            digest, first = self._known.setdefault(file.source, (file.digest, place))
            if digest != file.digest:
                text = (
                    f"{file.source} has another digest in {first}; one of the two can't be loaded"
                )
                yield Note(file.line, text)
