"""Files with the names of classes, and how a model's numbers are theirs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pytest_mlms.author.legacy.digests import DigestOfFile
from pytest_mlms.author.legacy.records import Note
from pytest_mlms.author.legacy.translation_files import UNPINNED, address_of, digest_of

_COCO_WITHOUT_BACKGROUND = "a830abf70aabcb873475cbf57e3ce380"
"""The md5 of COCO's 91 names without a line for the background, class 0 of TensorFlow's models."""


@dataclass(frozen=True)
class ClassNames:
    """A file of names; ``source`` is "" where there is none. ``md5`` is as native digests are."""

    source: str = ""
    digest: str = ""
    why: str = ""
    line: int = 0
    notes: tuple[Note, ...] = ()

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The parameters of a step that names the file."""
        return {"labels": self.source, "sha256": self.digest} if self.source else {}

    @property
    def digests(self) -> tuple[DigestOfFile, ...]:
        """The digest of the file, if there is one."""
        if not self.source or self.digest == UNPINNED:
            return ()
        return (DigestOfFile(self.source, self.digest, self.line),)

    @property
    def lacks_background(self) -> bool:
        """True for COCO's names, whose first one is that of class 1."""
        return self.digest == f"md5:{_COCO_WITHOUT_BACKGROUND}"


def class_names(labels: str, md5: str, line: int, digest_line: int) -> ClassNames:
    """Return the file of names that a manifest has at a line.

    Raises UnclearManifest for what is no address or no md5.
    """
    if not labels:
        return ClassNames(notes=(Note(line, "there are no names of classes"),))
    source, why = address_of(labels, line)
    if not md5:
        text = "the names of classes have no md5; their sha256 is recorded when they are fetched"
        return ClassNames(source, UNPINNED, why, line, (Note(line, text),))
    digest = digest_of(md5, digest_line, "features_checksum")
    return ClassNames(source, digest, why, digest_line)
