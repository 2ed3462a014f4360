"""Artifacts to local files that are surely the right ones.

A local file is used where it is, once its sha256 is right. Anything else is fetched into the cache,
one folder a digest, under a lock, by way of a partial file that a later attempt goes on with; it
gets its name when it is whole and its digest is right, and never before. pooch does the checking
and moving, filelock the locking.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

import filelock
import pooch
import requests

from pytest_mlms.artifacts.archives import UnsafeArchive, is_archive, unpack
from pytest_mlms.errors import ArtifactError
from pytest_mlms.manifest.load import LoadedManifest
from pytest_mlms.manifest.schema import Model
from pytest_mlms.records import Artifact

__all__ = [
    "CaseFiles",
    "Progress",
    "check_local",
    "default_cache",
    "digest_of",
    "fetch",
    "fetch_files",
]

Progress = Callable[[str, int, int], None]
"""Called with the file's name, the bytes so far, and the bytes in all (0 where the server doesn't
say).
"""

Bring = Callable[[LoadedManifest, Artifact], Artifact]
"""Returns an artifact that is local to whoever started the run, with a path on this host."""

_ATTEMPTS = 4
_CHUNK = 1 << 16  # bytes, at most what a broken connection loses
_SILENCE = 30  # seconds without a byte


def default_cache() -> Path:
    """Return the user's cache folder for this program.

    MLMS_CACHE in the environment overrides it.
    """
    return Path(os.environ.get("MLMS_CACHE") or pooch.os_cache("pytest-mlms"))


class _WebPage(Exception):
    """The answer is HTML, and the file is not."""


@dataclass(frozen=True)
class CaseFiles:
    """The local files of a case.

    Of the model by role, and the dataset and the labels where it has them.
    """

    model: Mapping[str, Path]
    dataset: Path | None
    labels: Path | None


def fetch_files(
    loaded: LoadedManifest,
    model: Model,
    cache: Path,
    progress: Progress,
    bring: Bring = lambda loaded, artifact: artifact,
) -> CaseFiles:
    """Return the local files that one model of a manifest needs; ``bring`` puts local ones on this
    host first.

    Raises ArtifactError.
    """

    def fetch_one(artifact: Artifact) -> Path:
        return fetch(artifact if _is_remote(artifact) else bring(loaded, artifact), cache, progress)

    def get(artifact: Artifact | None) -> Path | None:
        return fetch_one(artifact) if artifact else None

    files = {role: fetch_one(artifact) for role, artifact in loaded.model_files(model).items()}
    return CaseFiles(files, get(loaded.dataset_file), get(loaded.labels_file))


def fetch(
    artifact: Artifact, cache: Path, progress: Progress = lambda name, done, total: None
) -> Path:
    """Return the local path of a file whose digest has been checked; of an archive, its folder or
    the member named.

    Raises ArtifactError, which names the manifest's line, what was expected and what was found.
    """
    try:
        remote = _is_remote(artifact)
        path = _download(artifact, cache / "artifacts", progress) if remote else _local(artifact)
        return _member(artifact, path, cache) if artifact.member or is_archive(path) else path
    except OSError as error:
        raise ArtifactError(
            f"{artifact.place}: {artifact.source}: {error.strerror} ({error.filename}); "
            f"make room or grant access, or name another cache with --mlms-cache"
        ) from error


def check_local(loaded: LoadedManifest) -> Iterator[ArtifactError]:
    """Yield what is wrong with the files of a manifest that need not be fetched."""
    files = [
        file for model in loaded.manifest.models for file in loaded.model_files(model).values()
    ]
    for artifact in (*files, loaded.dataset_file, loaded.labels_file):
        if artifact and not _is_remote(artifact):
            try:
                _local(artifact)
            except ArtifactError as error:
                yield error


def _is_remote(artifact: Artifact) -> bool:
    return urlsplit(artifact.source).scheme in ("http", "https")


def _local(artifact: Artifact) -> Path:
    path = Path(artifact.source)
    if not path.is_file():
        what = "is a folder, not a file" if path.is_dir() else "does not exist"
        raise ArtifactError(
            f"{artifact.place}: {path} {what}; correct the path, or put the file there"
        )
    if artifact.sha256 and (found := digest_of(path)) != artifact.sha256:
        raise ArtifactError(
            f"{artifact.place}: {path} has sha256 {found}, expected {artifact.sha256}; "
            f"restore the file, or write its digest into the manifest if you mean this one"
        )
    return path


def _download(artifact: Artifact, cache: Path, progress: Progress) -> Path:
    assert artifact.sha256, "the schema asks for the digest of what is remote"
    url, digest = artifact.source, artifact.sha256
    folder = cache / digest[:2] / digest
    path = folder / (unquote(urlsplit(url).path).rpartition("/")[2] or "file")
    if path.is_file() and digest_of(path) == digest:
        return path
    folder.mkdir(parents=True, exist_ok=True)
    with filelock.FileLock(folder.with_suffix(".lock")):
        for stray in folder.glob("tmp*"):  # of a process that was killed; nobody else is here
            stray.unlink()
        try:
            _retrieve(url, digest, path, progress)
        except (ValueError, requests.RequestException, _WebPage) as error:
            raise ArtifactError(f"{artifact.place}: {url}: {_reason(error)}") from error
    return path


def _retrieve(url: str, digest: str, path: Path, progress: Progress) -> None:
    """Fetch by pooch, which gives the file its name when its digest is right; twice where the first
    went on with the partial file of an earlier attempt, since that may be of another version.
    """
    logging.getLogger("pooch").setLevel(logging.WARNING)
    partial = path.with_name("partial")
    again = partial.exists()

    def downloader(url: str, output: str, _: object) -> None:
        _resume(url, partial, progress, path.name)
        os.replace(partial, output)

    def retrieve() -> None:
        pooch.retrieve(
            url, f"sha256:{digest}", fname=path.name, path=path.parent, downloader=downloader
        )

    try:
        retrieve()
    except ValueError:
        if not again:
            raise
        retrieve()


def _resume(url: str, partial: Path, progress: Progress, name: str) -> None:
    """Append to ``partial`` until it is whole, going on after failures that may pass."""
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            _append(url, partial, progress, name)
            return
        except requests.RequestException as error:
            status = error.response.status_code if error.response is not None else None
            if attempt == _ATTEMPTS or (status is not None and status < 500):
                raise
            time.sleep(0.25 * 2**attempt)


def _append(url: str, partial: Path, progress: Progress, name: str) -> None:
    done = partial.stat().st_size if partial.exists() else 0
    headers = {"Accept-Encoding": "identity", **({"Range": f"bytes={done}-"} if done else {})}
    with requests.get(url, headers=headers, stream=True, timeout=_SILENCE) as response:
        if done and response.status_code == requests.codes.requested_range_not_satisfiable:
            return  # it was whole already, or the digest will tell
        response.raise_for_status()
        if response.headers.get("Content-Type", "").startswith("text/html") and not name.endswith(
            ".html"
        ):
            raise _WebPage
        done = done if response.status_code == requests.codes.partial_content else 0
        total = done + int(response.headers.get("Content-Length", 0))
        with partial.open("ab" if done else "wb") as file:
            for chunk in response.iter_content(_CHUNK):
                file.write(chunk)
                done += len(chunk)
                progress(name, done, total)
    if done < total:
        raise requests.ConnectionError(f"the connection ended after {done:,} of {total:,} bytes")


def _reason(error: Exception) -> str:
    """Say what went wrong and what to do."""
    if isinstance(error, requests.HTTPError):
        return f"the server answered {error.response.status_code} {error.response.reason}; correct the address"
    if isinstance(error, _WebPage):
        return "the server sent a web page instead of the file; it may want a login, or this is a page about the file"
    if isinstance(error, requests.RequestException):
        return (
            f"{error}; run again to go on with what is there, or check the network and the address"
        )
    return f"{error} Correct the manifest's sha256 if the file is the one that you mean."


def _member(artifact: Artifact, path: Path, cache: Path) -> Path:
    digest = artifact.sha256 or digest_of(path)
    folder = cache / "unpacked" / digest[:2] / digest
    folder.parent.mkdir(parents=True, exist_ok=True)
    with filelock.FileLock(folder.with_suffix(".lock")):
        if not folder.exists():
            try:
                unpack(path, folder)
            except UnsafeArchive as error:
                raise ArtifactError(
                    f"{artifact.place}: {path} can't be unpacked: {error}"
                ) from error
    inside = folder / (artifact.member or "")
    if not inside.exists() or not inside.resolve().is_relative_to(folder.resolve()):
        has = ", ".join(sorted(str(found.relative_to(folder)) for found in folder.rglob("*"))[:10])
        raise ArtifactError(
            f"{artifact.place}: {path.name} has no {artifact.member!r}; it has {has or 'nothing'}"
        )
    return inside


def digest_of(path: Path) -> str:
    """Return the sha256 of a file, computed once a process and state of the file."""
    state = path.stat()
    return _digest_of(path, state.st_size, state.st_mtime_ns)


@lru_cache(maxsize=1024)
def _digest_of(path: Path, size: int, modified: int) -> str:
    """Return the sha256, computed once a process and state of the file."""
    return str(pooch.file_hash(str(path), alg="sha256"))
