"""Digests of unpinned files, recorded beside the manifest when they are first used.

``m.sha256`` has the digests of ``m.yaml``, in the form of sha256sum: a digest, two blanks and the
address or path, a line each.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from pathlib import Path

from pytest_mlms.core.errors import ArtifactError
from pytest_mlms.core.files import read_regular
from pytest_mlms.core.records import RecordedDigest
from pytest_mlms.core.redaction import redact
from pytest_mlms.manifest.sources import is_remote

UNPINNED = "unpinned"
"""The sha256 of a file that has none in its manifest."""

_LINE = re.compile(r"([0-9a-f]{64})  (\S.*)")
_MOST_BYTES = 1 << 20
_KEPT = 12  # digits of the digest of an address that isn't shown


def recorded_in(manifest: Path, source: str) -> RecordedDigest:
    """Return the place where the digest of an unpinned file of a manifest is recorded.

    ``source`` is an address or an absolute path. Secrets of an address are not written.
    """
    name = os.path.relpath(source, manifest.parent)
    if is_remote(source):
        name = redact(source)
        if name != source:
            name += f" ({hashlib.sha256(source.encode()).hexdigest()[:_KEPT]})"
    return RecordedDigest(manifest.with_suffix(".sha256"), " ".join(name.split()))


def recorded_digest(place: RecordedDigest) -> str | None:
    """Return the digest that is recorded at a place, if there is one.

    Raises ArtifactError for a file of another form, or with two digests of the file.
    """
    return _read(place.file).get(place.name)


def _read(path: Path) -> Mapping[str, str]:
    try:
        text = read_regular(path, _MOST_BYTES).decode()
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise ArtifactError(f"{path}: can't be read: {error}; correct or remove it") from error
    digests: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        found = _LINE.fullmatch(line)
        if not found:
            advice = "write a digest, two blanks and an address, or remove the line"
            raise ArtifactError(f"{path}:{number}: {line[:_KEPT]!r} is no digest; {advice}")
        digest, name = found.groups()
        if digests.setdefault(name, digest) != digest:
            advice = "remove the one that you don't mean"
            raise ArtifactError(f"{path}:{number}: {name} has another digest above; {advice}")
    return digests


def add_digest(place: RecordedDigest, digest: str) -> None:
    """Record the digest of a file. Raises OSError where it can't be written.

    A line is written at once, so that several processes may record digests.
    """
    line = f"{digest}  {place.name}\n".encode()
    descriptor = os.open(place.file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    try:
        os.write(descriptor, line)
    finally:
        os.close(descriptor)
