"""Artifacts to local files whose digest has been checked.

A local file is used where it is. Anything else is downloaded into the cache, to one folder for
each digest, by one process at a time. The downloader is imported for the first download: pooch
imports requests then, which takes half a second, and minutes where coverage is measured beside an
installed chardet.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import platformdirs
from mlms_predictors._run.zip_files import begins_as_zip, plain_members

from pytest_mlms.core.errors import ArtifactError
from pytest_mlms.core.records import Artifact, DownloadLimits
from pytest_mlms.core.waits import hold_lock
from pytest_mlms.manifest.load import LoadedManifest
from pytest_mlms.manifest.schema import Model
from pytest_mlms.manifest.sources import is_remote, scheme_of
from pytest_mlms.provide.artifacts.archives import UnsafeArchive, is_archive
from pytest_mlms.provide.artifacts.digest import (
    POINTER_ADVICE,
    check_digest,
    digest_of,
    has_digest,
    if_recorded,
    is_pointer_file,
    pinned,
    sha256_of,
)
from pytest_mlms.provide.artifacts.external_data import check_external_data, with_external_data
from pytest_mlms.provide.artifacts.unpacked import unpacked

if TYPE_CHECKING:
    from pytest_mlms.provide.artifacts.transfer import ReportProgress

__all__ = [
    "NO_CACHE",
    "CaseFiles",
    "check_local",
    "default_cache",
    "fetch",
    "fetch_files",
    "fetch_unpinned",
    "needs_cache",
]

Bring = Callable[[LoadedManifest, Artifact], Artifact]
"""Returns a copy on this host of an artifact that is local to the host that started the run."""

_LIMITS = DownloadLimits()
NO_CACHE = Path("/nonexistent/HOME-is-not-set")
_NAME_LENGTH = 60  # characters of a download's name, fewer than any file system's 255 bytes
_SHOWN_MEMBERS = 10  # of an archive that doesn't have the one named


def default_cache() -> Path:
    """Return MLMS_CACHE of the environment, or the user's cache folder for this program.

    A user without a home has none. Local files need none either, so it is no error until something
    is to be kept there.
    """
    named = os.environ.get("MLMS_CACHE")
    if named:
        return Path(os.path.expanduser(named)).absolute()
    try:
        cache = Path(platformdirs.user_cache_dir("pytest-mlms"))
    except RuntimeError:
        return NO_CACHE
    return cache if cache.is_absolute() else NO_CACHE


@dataclass(frozen=True)
class CaseFiles:
    """The local files of a case: the model's by role, and its dataset, if any.

    ``steps`` are the files that steps name, by what the manifest says there. ``arrivals`` is the
    file of a replay.
    """

    model: Mapping[str, Path]
    dataset: Path | None
    steps: Mapping[str, Path]
    arrivals: Path | None = None


def _report_nothing(name: str, done: int, total: int) -> None:
    pass


def _say_nothing(step: str) -> None:
    pass


def _is_here(loaded: LoadedManifest, artifact: Artifact) -> Artifact:
    return artifact


def fetch_files(
    loaded: LoadedManifest,
    model: Model,
    cache: Path,
    progress: ReportProgress = _report_nothing,
    bring: Bring = _is_here,
    limits: DownloadLimits = _LIMITS,
    say: Callable[[str], None] = _say_nothing,
    arrivals: str | None = None,
    with_dataset: bool = True,
) -> CaseFiles:
    """Return the local files that one model of a manifest needs.

    ``bring`` copies files to this host first that are local to the one that started the run.
    ``say`` is told of other steps than downloads that may take long. ``arrivals`` is the file of a
    replay, by what the manifest says there. ``with_dataset`` is False for who has other inputs.
    Raises ArtifactError.
    """

    def fetch_one(artifact: Artifact) -> Path:
        if not is_remote(artifact.source):
            artifact = bring(loaded, artifact)
        return fetch(artifact, cache, progress, limits, say)

    files = loaded.model_files(model)
    paths = {role: fetch_one(artifact) for role, artifact in files.items()}
    try:
        model_paths = with_external_data(model.name, files, paths, cache)
    except OSError as error:
        raise _disk_error(files["graph"], error, cache) from error
    data_file = loaded.dataset_file if with_dataset else None
    dataset = fetch_one(data_file) if data_file else None
    steps = {name: fetch_one(artifact) for name, artifact in loaded.step_files.items()}
    replayed = fetch_one(loaded.arrivals_files[arrivals]) if arrivals else None
    return CaseFiles(model_paths, dataset, steps, replayed)


def fetch(
    artifact: Artifact,
    cache: Path,
    progress: ReportProgress = _report_nothing,
    limits: DownloadLimits = _LIMITS,
    say: Callable[[str], None] = _say_nothing,
) -> Path:
    """Return the local path of a file whose digest has been checked.

    For an archive it is the folder of its content, or the member that the artifact names. Raises
    ArtifactError, which names the manifest's line, what was expected and what was found.
    """
    try:
        known = pinned(artifact, partial(_first_digest, artifact, cache, progress, limits))
        path = _checked(known, cache, progress, limits)
        if not _is_unpacked(known, path):
            return path
        with _removing_others(known, path):
            folder = _unpacked(known, path, cache, limits, say)
            member = _member(known, path, folder)
            _check_either(known, path, member)
        return member
    except OSError as error:
        raise _disk_error(artifact, error, cache) from error


def _may_be_of_member(artifact: Artifact) -> bool:
    """Return whether a digest is an md5 beside a member: old manifests have the md5 of either."""
    is_web = scheme_of(artifact.source) in ("http", "https")
    return is_web and artifact.member is not None and (artifact.sha256 or "").startswith("md5:")


@contextmanager
def _removing_others(artifact: Artifact, path: Path) -> Iterator[None]:
    """Remove a download whose digest could not be checked before, if an error follows."""
    try:
        yield
    except ArtifactError:
        if _may_be_of_member(artifact):
            path.unlink(missing_ok=True)
        raise


def _check_either(artifact: Artifact, path: Path, member: Path) -> None:
    """Raise ArtifactError unless an md5 belongs to an archive or to its member."""
    digest = artifact.sha256 or ""
    if not _may_be_of_member(artifact) or has_digest(path, digest):
        return
    if member.is_file() and has_digest(member, digest):
        text = f"the md5 is that of {artifact.member} in the archive, not of the archive"
        warnings.warn_explicit(text, UserWarning, str(artifact.place.path), artifact.place.line)
        return
    problem = f"neither {path.name} nor {artifact.member} in it has {digest}"
    advice = "restore the file, or write the sha256 of the archive if you mean this one"
    raise ArtifactError(f"{artifact.place}: {problem}; {advice}")


def _first_digest(
    artifact: Artifact, cache: Path, progress: ReportProgress, limits: DownloadLimits
) -> str:
    """Return the digest of a file that is used for the first time."""
    if not is_remote(artifact.source):
        return digest_of(_local(artifact))
    locks = cache / "artifacts"
    locks.mkdir(parents=True, exist_ok=True)
    name = hashlib.sha256(artifact.source.encode()).hexdigest()
    with hold_lock(locks / f"unpinned-{name}.lock"):
        return if_recorded(artifact).sha256 or fetch_unpinned(artifact, cache, progress, limits)


def _disk_error(artifact: Artifact, error: OSError, cache: Path) -> ArtifactError:
    names = [name for name in (error.filename, error.filename2) if name]
    where = f" ({names[-1]})" if names else ""
    problem = f"{artifact.place}: {artifact.source}: {error.strerror or error}{where}"
    advice = "make room or grant access, or name another cache with --mlms-cache"
    if cache == NO_CACHE:
        advice = "HOME is not set: name a folder for the cache with --mlms-cache or MLMS_CACHE"
    return ArtifactError(f"{problem}; {advice}")


def check_local(loaded: LoadedManifest) -> Iterator[ArtifactError]:
    """Yield an error for each local file of a manifest that can't be used.

    It is missing, has a wrong digest, or reads files that no digest covers.
    """
    for artifact in loaded.artifacts:
        if not is_remote(artifact.source):
            yield from _local_errors(artifact)
    for model in loaded.manifest.models:
        yield from _external_errors(model.name, loaded.model_files(model))


def _local_errors(artifact: Artifact) -> Iterator[ArtifactError]:
    try:
        _checked(if_recorded(artifact), Path(), _report_nothing, _LIMITS)
    except ArtifactError as error:
        yield error
    except OSError as error:
        problem = f"{artifact.source} can't be read: {error.strerror}"
        yield ArtifactError(f"{artifact.place}: {problem}; grant access to it")


def _external_errors(framework: str, files: Mapping[str, Artifact]) -> Iterator[ArtifactError]:
    graph = files["graph"]
    path = Path(graph.source)
    if _is_unpacked(graph, path) or not os.path.isfile(path):
        return
    try:
        check_external_data(framework, files, path)
    except ArtifactError as error:
        yield error


def _checked(
    artifact: Artifact, cache: Path, progress: ReportProgress, limits: DownloadLimits
) -> Path:
    if is_remote(artifact.source):
        path = _downloaded(artifact, cache, progress, limits)
        _refuse_pointer(artifact, path)
    else:
        path = _local(artifact)
    _warn_of_md5(artifact, path)
    if not _is_unpacked(artifact, path):
        _check_zip(artifact, path)
    return path


def _warn_of_md5(artifact: Artifact, path: Path) -> None:
    """Warn where the digest can be met by another file that somebody has made for it."""
    if artifact.sha256 and artifact.sha256.startswith("md5:"):
        text = f"an md5 doesn't tell a forged file; write 'sha256: {digest_of(path)}' instead"
        warnings.warn_explicit(text, UserWarning, str(artifact.place.path), artifact.place.line)


def _is_unpacked(artifact: Artifact, path: Path) -> bool:
    """Return whether an artifact is an archive that is unpacked here."""
    return artifact.member is not None or is_archive(path)


def _local(artifact: Artifact) -> Path:
    """Return the path of a local file, checked; raises ArtifactError."""
    path = Path(artifact.source)
    if not os.path.isfile(path):  # which a name that is too long for one isn't, either
        reason = "is a folder, not a file" if os.path.isdir(path) else "does not exist"
        advice = "correct the path, or put the file there"
        raise ArtifactError(f"{artifact.place}: {path} {reason}; {advice}")
    _refuse_pointer(artifact, path)
    check_digest(artifact, path)
    return path


def _refuse_pointer(artifact: Artifact, path: Path) -> None:
    if is_pointer_file(path):
        member = f"#{artifact.member}" if path.name != Path(artifact.source).name else ""
        name = f"{artifact.source}{member}"
        raise ArtifactError(f"{artifact.place}: {name} is {POINTER_ADVICE}")


def _check_zip(artifact: Artifact, path: Path) -> None:
    """Raise ArtifactError where readers might differ in what they see in a zip file."""
    if not begins_as_zip(str(path)):
        return
    try:
        plain_members(str(path))
    except ValueError as error:
        advice = "write it again with the program that it is from"
        raise ArtifactError(f"{artifact.place}: {path}: {error}; {advice}") from error


def _downloaded(
    artifact: Artifact, cache: Path, progress: ReportProgress, limits: DownloadLimits
) -> Path:
    """Return the path of a remote file in the cache, downloaded unless it is there already."""
    from pytest_mlms.provide.artifacts.schemes import download
    from pytest_mlms.provide.artifacts.transfer import DownloadError

    digest = artifact.sha256
    assert digest, "the schema asks for the digest of what is remote"
    path = _kept(artifact.source, digest, cache)
    folder = path.parent
    is_checked_later = _may_be_of_member(artifact)
    if path.is_file() and (is_checked_later or has_digest(path, digest)):
        return path
    folder.mkdir(parents=True, exist_ok=True)

    def waiting(holder: Callable[[], str]) -> AbstractContextManager[None]:
        progress(f"{path.name} (by {holder()})", 0, 0)
        return nullcontext()

    progress(path.name, 0, 0)
    with hold_lock(folder.with_suffix(".lock"), waiting):
        for stray in folder.glob("tmp*"):
            stray.unlink()  # pooch's temporary file, of a process that was killed
        try:
            known = replace(artifact, sha256=None) if is_checked_later else artifact
            download(known, path, cache, progress, limits)
        except DownloadError as error:
            problem = f"{artifact.source}: {error}{_recorded(artifact)}"
            raise ArtifactError(f"{artifact.place}: {problem}") from error
    return path


def _kept(source: str, digest: str, cache: Path) -> Path:
    """Return the path that a remote file has in the cache."""
    name = digest.replace(":", "-")
    return cache / "artifacts" / name[:2] / name / _name_of(source)


def needs_cache(artifact: Artifact, cache: Path) -> bool:
    """Return whether the use of a file writes into the cache, where it is fetched or unpacked."""
    if artifact.member is not None or is_archive(Path(artifact.source)):
        return True
    if not is_remote(artifact.source):
        return False
    digest = if_recorded(artifact).sha256
    return not (digest and _kept(artifact.source, digest, cache).is_file())


def _recorded(artifact: Artifact) -> str:
    """Return where the digest of an unpinned file is from, as the end of an error."""
    if artifact.recorded is None:
        return ""
    return f" (recorded in {artifact.recorded.file}; remove its line there if you mean this file)"


def fetch_unpinned(
    artifact: Artifact,
    cache: Path,
    progress: ReportProgress = _report_nothing,
    limits: DownloadLimits = _LIMITS,
) -> str:
    """Download a file whose digest is not known; return its sha256. Raises ArtifactError.

    The file is kept in the cache, where a manifest with the digest finds it.
    """
    from pytest_mlms.provide.artifacts.schemes import download
    from pytest_mlms.provide.artifacts.transfer import DownloadError

    name = _name_of(artifact.source)
    artifacts = cache / "artifacts"
    try:
        artifacts.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="tmp-", dir=artifacts) as folder:
            path = Path(folder, name)
            download(replace(artifact, sha256=None), path, cache, progress, limits)
            _refuse_pointer(artifact, path)
            digest = sha256_of(path)
            kept = artifacts / digest[:2] / digest
            kept.mkdir(parents=True, exist_ok=True)
            os.replace(path, kept / name)
    except DownloadError as error:
        raise ArtifactError(f"{artifact.place}: {artifact.source}: {error}") from error
    except OSError as error:
        raise _disk_error(artifact, error, cache) from error
    return digest


def _name_of(url: str) -> str:
    """Return the last part of an address, with what is safe in the name of a file."""
    parts = urlsplit(url)
    path = parts.fragment if parts.scheme == "pypi" and parts.fragment else unquote(parts.path)
    name = path.rpartition("/")[2]
    return re.sub(r"[^\w.+-]", "_", name)[-_NAME_LENGTH:].lstrip(".") or "file"


def _unpacked(
    artifact: Artifact,
    path: Path,
    cache: Path,
    limits: DownloadLimits,
    say: Callable[[str], None],
) -> Path:
    """Return the folder with all members of an archive."""

    def waiting(holder: Callable[[], str]) -> AbstractContextManager[None]:
        say(f"{path.name}, which {holder()} unpacks")
        return nullcontext()

    digest = digest_of(path)
    say(f"unpacking {path.name}")
    try:
        return unpacked(path, digest, cache, limits.unpacked, waiting)
    except UnsafeArchive as error:
        raise ArtifactError(f"{artifact.place}: {path} can't be unpacked: {error}") from error


def _member(artifact: Artifact, path: Path, folder: Path) -> Path:
    """Return the member of an archive that an artifact names, or the folder with all members."""
    member = folder / (artifact.member or "")
    if scheme_of(artifact.source) == "pypi" and not member.exists():
        member = _below_top(folder, artifact.member or "")
    is_inside = member.resolve().is_relative_to(folder.resolve())
    if not is_inside or not member.exists():
        members = sorted(str(found.relative_to(folder)) for found in folder.rglob("*"))
        shown = ", ".join(members[:_SHOWN_MEMBERS]) or "nothing"
        problem = f"{path.name} has no {artifact.member!r}"
        raise ArtifactError(f"{artifact.place}: {problem}; it has {shown}")
    if member.is_file():
        _refuse_pointer(artifact, member)
        _check_zip(artifact, member)
    return member


def _below_top(folder: Path, member: str) -> Path:
    """Return the path in the one folder that is around all of a source distribution."""
    tops = list(folder.iterdir())
    return tops[0] / member if len(tops) == 1 else folder / member
