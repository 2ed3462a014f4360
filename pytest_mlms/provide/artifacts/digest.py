"""Digests of files, and Git LFS pointers: small texts in place of files that were not fetched."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path

from pytest_mlms.core.errors import ArtifactError
from pytest_mlms.core.files import FileState
from pytest_mlms.core.records import Artifact

_BEGINNING = b"version https://git-lfs.github.com/spec/"

POINTER_ADVICE = "a Git LFS pointer, not the file itself; run 'git lfs pull' where it is from"


def is_pointer(data: bytes) -> bool:
    """Return whether a file's content is a pointer."""
    return data.startswith(_BEGINNING)


def is_pointer_file(path: Path) -> bool:
    """Return whether the file at ``path`` is a pointer."""
    with path.open("rb") as file:
        return is_pointer(file.read(len(_BEGINNING)))


_CHUNK = 1 << 20  # bytes


def check_digest(artifact: Artifact, path: Path) -> None:
    """Raise ArtifactError where ``path`` has another sha256 than the manifest says.

    An artifact without a digest in the manifest is not checked.
    """
    if artifact.sha256 is None:
        return
    if not has_digest(path, artifact.sha256):
        kind = "md5 than" if artifact.sha256.startswith("md5:") else f"sha256 {digest_of(path)}"
        problem = f"{path} has {kind}, expected {artifact.sha256}"
        advice = "write its digest into the manifest"
        if artifact.recorded:
            advice = f"remove its line from {artifact.recorded.file}"
        raise ArtifactError(
            f"{artifact.place}: {problem}; restore the file, or {advice} if you mean this one"
        )


def has_digest(path: Path, digest: str) -> bool:
    """Return whether a file has this sha256, or the md5 of "md5:…"."""
    algorithm, _, value = digest.rpartition(":")
    if algorithm != "md5":
        return digest_of(path) == digest
    return _hash_of(path, hashlib.md5(usedforsecurity=False)) == value


def digest_of(path: Path) -> str:
    """Return the sha256 of a file in hexadecimal.

    It is computed again in a process only after the file's status has changed: its size, the time
    of its last change, or the time of a change of its status, which no program can set.
    """
    return _compute(FileState.of(path))


@lru_cache(maxsize=1024)
def _compute(state: FileState) -> str:
    return sha256_of(Path(state.path))


def sha256_of(path: Path) -> str:
    """Return the sha256 of a file in hexadecimal, computed now."""
    return _hash_of(path, hashlib.sha256())


def _hash_of(path: Path, digest: hashlib._Hash) -> str:
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
