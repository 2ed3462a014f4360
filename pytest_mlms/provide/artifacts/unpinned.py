"""Files that a manifest leaves unpinned: the digest of the first use holds from then on."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace

from pytest_mlms.core.records import Artifact, RecordedDigest


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
