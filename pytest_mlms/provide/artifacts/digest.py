"""Digests of files in the cache, of those that are unpinned, and Git LFS pointers.

A pointer is a small text in place of a file that was not fetched. For a file that a manifest leaves
unpinned, the digest of its first use holds from then on."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from pytest_mlms.core.errors import ArtifactError
from pytest_mlms.core.files import FileState
from pytest_mlms.core.records import Artifact, RecordedDigest

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


def if_recorded(artifact: Artifact) -> Artifact:
    """Return an artifact with the digest that is recorded for it, if there is one.

    Raises ArtifactError for a record that can't be read.
    """
    if artifact.recorded is None or artifact.sha256:
        return artifact
    from pytest_mlms.manifest.digests import recorded_digest

    return replace(artifact, sha256=recorded_digest(artifact.recorded))


def without_record(artifact: Artifact) -> Artifact:
    """Return an artifact with the digest that is recorded, which fetching it will not record.

    Raises ArtifactError for a record that can't be read.
    """
    return replace(if_recorded(artifact), recorded=None)


def pinned(artifact: Artifact, find: Callable[[], str]) -> Artifact:
    """Return an artifact with its digest, which is recorded if it wasn't, and warn of it.

    ``find`` returns the digest of a file that has none. Raises ArtifactError.
    """
    known = if_recorded(artifact)
    record = known.recorded
    if record is None:
        return known
    state = "is recorded"
    if known.sha256 is None:
        digest = find()
        known = replace(known, sha256=digest)
        state = _record(record, digest)
    text = f"unpinned; its sha256 {state} in {record.file.name}; write 'sha256: {known.sha256}'"
    warnings.warn_explicit(text, UserWarning, str(known.place.path), known.place.line)
    return known


def _record(record: RecordedDigest, digest: str) -> str:
    """Record a digest; return whether it was, in words."""
    from pytest_mlms.manifest.digests import add_digest

    try:
        add_digest(record, digest)
    except OSError as error:
        return f"can't be recorded ({error.strerror})"
    return "is recorded now"
