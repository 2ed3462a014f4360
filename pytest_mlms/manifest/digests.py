"""The digests of local files, for errors of a manifest that lacks them."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urldefrag, urlsplit

__all__ = ["found_digests"]

_SOURCES = ("graph", "weights", "source", "labels")
"""Keys that name a file, beside its ``sha256``."""

_CHUNK = 1 << 20


def found_digests(location: Sequence[str | int], content: Any, folder: Path) -> str:
    """Return the digests of the files that an error at ``location`` is about, as an addition to it.

    ``content`` is that of the manifest, ``folder`` the one that it is in. Returns "" for errors
    that are not about a digest, and for files that are not there.
    """
    if "sha256" not in location:
        return ""
    index = location.index("sha256")
    owner = content
    for part in location[:index]:
        owner = owner[part]
    role = str(location[-1])
    roles = [role] if role in _SOURCES else _SOURCES
    found = ", ".join(_digests(owner, roles, folder))
    return f"; {found}" if found else ""


def _digests(owner: Mapping[str, Any], roles: Sequence[str], folder: Path) -> Iterator[str]:
    for role in roles:
        with contextlib.suppress(OSError, ValueError):  # other errors tell what is wrong with it
            path = _local_file(owner.get(role), folder)
            if path is not None:
                yield f"{path.name} has {_digest_of(path)}"


def _local_file(source: Any, folder: Path) -> Path | None:
    """Return the path of the file that a manifest names, if there is one."""
    if not isinstance(source, str):
        return None
    location, _ = urldefrag(source)
    if urlsplit(location).scheme:
        return None
    path = folder / location
    return path if os.path.isfile(path) else None  # also where the name is too long for one


def _digest_of(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
