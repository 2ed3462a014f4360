"""Recognition of Git LFS pointers: small texts that stand for files which were not fetched."""

from __future__ import annotations

from pathlib import Path

_BEGINNING = b"version https://git-lfs.github.com/spec/"

POINTER_ADVICE = "a Git LFS pointer, not the file itself; run 'git lfs pull' where it is from"


def is_pointer(data: bytes) -> bool:
    """Return whether a file's content is a pointer."""
    return data.startswith(_BEGINNING)


def is_pointer_file(path: Path) -> bool:
    """Return whether the file at ``path`` is a pointer."""
    with path.open("rb") as file:
        return is_pointer(file.read(len(_BEGINNING)))
