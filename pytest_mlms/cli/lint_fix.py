"""``mlms lint --fix``: write the digests that a manifest lacks, and change nothing else in it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.files import replacing
from pytest_mlms.core.records import Artifact, Place
from pytest_mlms.manifest.digests import (
    CannotEdit,
    MissingDigest,
    digest_text,
    local_file,
    missing_digests,
)
from pytest_mlms.manifest.load import read, shown
from pytest_mlms.manifest.sources import is_remote, split_source
from pytest_mlms.provide.artifacts.digest import POINTER_ADVICE, digest_of, is_pointer_file

Fetch = Callable[[Artifact], str]
"""Downloads a file and returns its digest; raises MlmsError."""

_SHOWN = 12  # characters of a digest
_BYTE_ORDER_MARK = "\ufeff"


class _NotFound(Exception):
    """The digest of a file can't be found; the text says why, and what to do."""


def fix_digests(path: Path, fetch: Fetch | None = None) -> Iterator[str]:
    """Write the digests that a manifest lacks; yield a line for each, and for each that is left.

    ``fetch`` returns the digest of a remote file; without it, those are left. Digests that are
    there stay, also those of files that have changed since. The manifest is written once, whole or
    not at all. Raises MlmsError where that fails.
    """
    document = read(path)
    if document.errors:
        return  # mlms lint shows them
    original = path.read_bytes().decode()
    mark = _BYTE_ORDER_MARK if original.startswith(_BYTE_ORDER_MARK) else ""
    text = original.removeprefix(mark)
    lines = []
    for missing in missing_digests(document.value):
        place = Place(shown(path), document.line(missing.path))
        try:
            text, line = _fixed(text, missing, _Finder(path.parent, place, fetch))
        except _NotFound as error:
            line = str(error)
        lines.append(f"{place}: {line}")
    if mark + text != original:
        _write(path, mark + text)
    yield from lines


def _fixed(text: str, missing: MissingDigest, finder: _Finder) -> tuple[str, str]:
    """Return the text with the digests of one mapping, and a line that says so."""
    digests = missing.known()
    wrote = []
    for role, source in missing.sources.items():
        if role not in digests:
            digests[role] = finder.digest_of(source)
            wrote.append(f"{source} ({digests[role][:_SHOWN]}…)")
    names = ", ".join(wrote)
    try:
        return missing.write(text, digests), f"wrote the sha256 of {names}"
    except CannotEdit:
        line = f"sha256: {digest_text(digests)}"
        raise _NotFound(f"is not written in a form that is edited here; add '{line}'") from None


@dataclass(frozen=True)
class _Finder:
    """The finder of the digests of the files that a line of a manifest in ``folder`` names."""

    folder: Path
    place: Place
    fetch: Fetch | None

    def digest_of(self, source: str) -> str:
        """Return the digest of a file; raises _NotFound."""
        if is_remote(source):
            return self._of_remote(source)
        path = local_file(source, self.folder)
        if path is None:
            missing = self.folder / source
            problem = "is a folder, not a file" if missing.is_dir() else "does not exist"
            raise _NotFound(f"{missing} {problem}; correct the path, or put the file there")
        try:
            if is_pointer_file(path):
                raise _NotFound(f"{source} is {POINTER_ADVICE}")
            return digest_of(path)
        except OSError as error:
            problem = f"{source} can't be read: {error.strerror}"
            raise _NotFound(f"{problem}; grant access to it") from None

    def _of_remote(self, source: str) -> str:
        if self.fetch is None:
            raise _NotFound(f"{source} is not fetched; --fetch does that, and writes its sha256")
        location, _ = split_source(source)
        try:
            return self.fetch(Artifact(location, None, self.place))
        except MlmsError as error:
            text = str(error).removeprefix(f"{self.place}: ")
            raise _NotFound(text) from error


def _write(path: Path, text: str) -> None:
    """Replace the content of a manifest, which may be a link; its permissions stay."""
    target = path.resolve()
    try:
        with replacing(target) as temporary:
            temporary.write_bytes(text.encode())
            shutil.copymode(target, temporary)
    except OSError as error:
        problem = f"{path} can't be written: {error.strerror}"
        raise MlmsError(f"{problem}; make room or grant access to its folder") from error
