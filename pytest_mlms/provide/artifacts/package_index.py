"""The files of a Python package, as the indexes and folders of pip's configuration offer them.

Nothing is installed or run: pip itself would run the build of a source distribution, even to
download it. pip only tells its configuration. Indexes are read by their simple API
(https://packaging.python.org/en/latest/specifications/simple-repository-api/).
"""

from __future__ import annotations

import functools
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html.parser import HTMLParser
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urldefrag, urlsplit
from urllib.request import url2pathname

from packaging.utils import canonicalize_name, parse_sdist_filename, parse_wheel_filename
from packaging.version import Version

from pytest_mlms.core.text import shortened
from pytest_mlms.provide.artifacts.answers import foreign_host, resolved
from pytest_mlms.provide.artifacts.child import WebError, read_answer
from pytest_mlms.provide.artifacts.transfer import DownloadError

_ACCEPT = (
    "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, "
    "text/html;q=0.1"
)
_LARGEST_PAGE = 1 << 25  # bytes
_MOST_PARTS = 1_000_000  # of a page: each takes some ten times its bytes in memory
_PIP_SECONDS = 60
_SHOWN = 200  # characters of pip's errors
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+!-]*")
"""The name of a package's file; packaging also takes folders, in the tag of a build."""

_LONGEST_NAME = 255  # characters, of a file on any disk
_SHA256 = re.compile(r"[0-9a-f]{64}")

_OTHER_FORM = (
    *(ValueError, KeyError, TypeError, AttributeError),
    *(OverflowError, RecursionError),
)
"""Errors of an answer that is no JSON of the simple API."""

_FILE_HOSTS = (
    *("files.pythonhosted.org", "test-files.pythonhosted.org"),
    *("download.pytorch.org", "download-r2.pytorch.org"),
)
"""The hosts of the files of PyPI and PyTorch, which pages of other indexes link to as well."""

_TELL_SETTINGS = """
import json
from pip._internal.commands import create_command
found, _ = create_command("download").parse_args([])
links = [] if found.no_index else [found.index_url, *found.extra_index_urls]
print(json.dumps({"indexes": links, "links": found.find_links, "certificates": found.cert}))
"""
"""pip merges its options from several files and the environment, and has the default index."""


@dataclass(frozen=True)
class PipSettings:
    """The indexes, the pages or folders of links, and a file of certificates."""

    indexes: tuple[str, ...]
    links: tuple[str, ...] = ()
    certificates: str | None = None


@dataclass(frozen=True)
class PackageFile:
    """A wheel or a source distribution, as a page or a folder offers it.

    ``size`` is 0 where the index doesn't tell it. ``yanked`` is the reason, None for one that isn't
    yanked. ``requires_python`` are the versions of Python that it is for, "" for all.
    """

    name: str
    url: str
    package: str
    version: Version
    is_wheel: bool
    is_for_any_platform: bool
    sha256: str | None = None
    size: int = 0
    yanked: str | None = None
    page: str = ""
    requires_python: str = ""

    @property
    def foreign_host(self) -> str:
        """The host of the file where its page may not lead there, else nothing."""
        host = foreign_host(self.page, self.url)
        return "" if host in _FILE_HOSTS else host


@functools.cache
def pip_settings() -> PipSettings:
    """Return the settings of this interpreter's pip; raises DownloadError without a pip."""
    command = [sys.executable, "-I", "-c", _TELL_SETTINGS]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_PIP_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise DownloadError(_without_pip("no answer")) from error
    try:
        told = json.loads(done.stdout.splitlines()[-1])
    except (ValueError, IndexError) as error:
        lines = done.stderr.splitlines() or ["no answer"]
        raise DownloadError(_without_pip(lines[-1])) from error
    return PipSettings(tuple(told["indexes"]), tuple(told["links"]), told["certificates"])


def _without_pip(reason: str) -> str:
    problem = f"pip tells which indexes to ask, and there is none for {sys.executable}"
    return f"{problem} ({shortened(reason, _SHOWN)}); run '{sys.executable} -m ensurepip'"


def offered_files(package: str, settings: PipSettings, end: float) -> list[PackageFile]:
    """Return the files of all versions of a package, in the order of the indexes.

    Raises DownloadError where an index can't be read, unless it only doesn't have the package.
    """
    canonical = canonicalize_name(package)
    found: list[PackageFile] = []
    for link in settings.links:
        found += _linked_files(link, settings, end)
    for index in settings.indexes:
        found += _files_of_page(f"{index.rstrip('/')}/{canonical}/", settings, end)
    return [file for file in found if file.package == canonical]


def _linked_files(link: str, settings: PipSettings, end: float) -> Iterator[PackageFile]:
    """Yield the files of one of pip's --find-links: a folder, or a page with links."""
    is_address = urlsplit(link).scheme in ("http", "https")
    if is_address:
        yield from _files_of_page(link, settings, end)
        return
    folder = _local(link) if link.startswith("file:") else Path(link).expanduser()
    if folder.is_dir():
        for path in sorted(folder.iterdir()):
            page = folder.absolute().as_uri()
            file = _package_file(path.name, path.absolute().as_uri(), page=page)
            if file:
                yield file
    elif folder.is_file():
        yield from _parsed(folder.read_bytes(), "text/html", folder.absolute().as_uri())


def _files_of_page(page: str, settings: PipSettings, end: float) -> Iterator[PackageFile]:
    if page.startswith("file:"):
        path = _local(page) / "index.html"
        if path.is_file():
            yield from _parsed(path.read_bytes(), "text/html", page)
        return
    try:
        headers = {"Accept": _ACCEPT}
        content, kind = read_answer(page, headers, end, _LARGEST_PAGE, settings.certificates)
    except WebError as error:
        if error.status == HTTPStatus.NOT_FOUND:
            return
        if error.url:
            raise DownloadError(_refusal(page, error.status)) from error
        advice = "check the network, or pip's index-url"
        raise DownloadError(f"the index can't be reached: {error}; {advice}") from error
    yield from _parsed(content, kind, page)


def _refusal(page: str, status: int) -> str:
    problem = f"the index answered {status} for {page}"
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        return f"{problem}; write a user and a token into pip's index-url, or into ~/.netrc"
    return f"{problem}; check pip's index-url"


def _parsed(content: bytes, kind: str, page: str) -> Iterator[PackageFile]:
    if sum(map(content.count, (b"[", b"{", b"<"))) > _MOST_PARTS:
        raise DownloadError(f"the index's page {page} has more than {_MOST_PARTS:,} entries")
    if "json" in kind:
        yield from _files_of_json(content, page)
    else:
        parser = _LinkParser()
        try:
            parser.feed(content.decode("utf-8", "replace"))
        except AssertionError as error:  # of html.parser, for a mark of SGML that HTML doesn't have
            problem = f"the index's page {page} is no HTML: {error}"
            raise DownloadError(f"{problem}; check pip's index-url") from error
        for attributes in parser.links:
            file = _file_of_link(attributes, page)
            if file:
                yield file


def _files_of_json(content: bytes, page: str) -> Iterator[PackageFile]:
    try:
        entries = json.loads(content)["files"]
        for entry in entries:
            file = _file_of_entry(entry, page)
            if file:
                yield file
    except _OTHER_FORM as error:
        problem = f"the index's answer for {page} is not of the simple API"
        raise DownloadError(f"{problem}: {error!r}; check pip's index-url") from error


def _file_of_entry(entry: Mapping[str, Any], page: str) -> PackageFile | None:
    yanked = entry.get("yanked", False)
    return _package_file(
        entry["filename"],
        resolved(page, entry["url"]),
        page=page,
        sha256=_sha256(entry.get("hashes", {}).get("sha256")),
        size=int(entry.get("size") or 0),
        yanked=None if yanked is False else _reason(yanked),
        requires_python=str(entry.get("requires-python") or ""),
    )


def _file_of_link(attributes: Mapping[str, str | None], page: str) -> PackageFile | None:
    address = attributes.get("href") or ""
    url, fragment = urldefrag(resolved(page, address))
    name = unquote(urlsplit(url).path).rpartition("/")[2]
    algorithm, _, digest = fragment.partition("=")
    return _package_file(
        name,
        url,
        page=page,
        sha256=_sha256(digest) if algorithm == "sha256" else None,
        yanked=_reason(attributes["data-yanked"]) if "data-yanked" in attributes else None,
        requires_python=attributes.get("data-requires-python") or "",
    )


def _sha256(digest: object) -> str | None:
    """Return a digest of an index; None for anything else."""
    return digest if isinstance(digest, str) and _SHA256.fullmatch(digest) else None


def _reason(yanked: object) -> str:
    """Return the reason of an index, which may be empty, or True for none."""
    return shortened(yanked, _SHOWN) if isinstance(yanked, str) else ""


def _package_file(name: str, url: str, **facts: Any) -> PackageFile | None:
    """Return a file by its name; None for what is neither a wheel nor a source distribution.

    packaging is told no tags but those of any platform: it makes all combinations of them, which
    were a million for a name of 1,200 characters.
    """
    if not url or not _NAME.fullmatch(name) or len(name) > _LONGEST_NAME:
        return None
    try:
        if name.endswith(".whl"):
            front, _, _, platforms = name.removesuffix(".whl").rsplit("-", 3)
            package, version, _, _ = parse_wheel_filename(f"{front}-py3-none-any.whl")
            is_for_any = "any" in platforms.lower().split(".")
            return PackageFile(name, url, package, version, True, is_for_any, **facts)
        package, version = parse_sdist_filename(name)
        return PackageFile(name, url, package, version, False, True, **facts)
    except ValueError:  # also of packaging: the name has other parts
        return None


def _local(address: str) -> Path:
    return Path(url2pathname(urlsplit(address).path))


class _LinkParser(HTMLParser):
    """Collects the attributes of the links of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[dict[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a link."""
        if tag == "a":
            self.links.append(dict(attrs))
