"""Packages on the index of a stack's installer: its releases, and why one can't be had."""

from __future__ import annotations

import platform
import re
import time
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.tags import compatible_tags, cpython_tags, sys_tags
from packaging.utils import parse_wheel_filename
from packaging.version import Version

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.records import Stack
from pytest_mlms.provide.artifacts.package_index import (
    PackageFile,
    PipSettings,
    offered_files,
    pip_settings,
)
from pytest_mlms.provide.artifacts.transfer import DownloadError

_SECONDS = 60  # for an answer of an index
_SHOWN_VERSIONS = 3
_NUMBER = re.compile(r"\d+")
_ANY_PATCH = 99  # of a Python of which only the minor version is known


def settings_of(stack: Stack) -> PipSettings:
    """Return pip's settings with the options of a stack; raises DownloadError without a pip."""
    own = pip_settings()
    indexes = list(own.indexes)
    links = list(own.links)
    for option in stack.options:
        name, _, value = option.partition("=")
        if name == "--index-url":
            indexes[:1] = [value]
        elif name == "--extra-index-url":
            indexes.append(value)
        elif name == "--find-links":
            links.append(value)
    return PipSettings(tuple(indexes), tuple(links), own.certificates)


def reason_of(package: str, stack: Stack, python: str) -> str:
    """Return why a package, as name==version, can't be had."""
    name, _, version = package.partition("==")
    try:
        end = time.monotonic() + _SECONDS
        files = offered_files(name, settings_of(stack), end)
    except DownloadError as error:
        return f"can't be had: {error}"
    offered = sorted({file.version for file in files}, reverse=True)
    if not offered:
        return "is not on the index"
    if version not in map(str, offered):
        shown = ", ".join(str(one) for one in offered[:_SHOWN_VERSIONS])
        return f"is not on the index any more; it has {shown}"
    return f"is on the index, without a file for Python {python} on this platform"


@dataclass(frozen=True)
class Release:
    """A release; ``size`` is that of its wheel in bytes, 0 where the index doesn't tell it."""

    package: str
    version: Version
    size: int

    @property
    def requirement(self) -> str:
        """The requirement that installs it."""
        return f"{self.package}=={self.version}"

    @property
    def stack(self) -> str:
        """The name of its stack."""
        return f"{self.package}-{self.version}".replace("+", "-").replace("!", "-")


def parse_requirement(text: str) -> Requirement:
    """Return a requirement of one package; raises MlmsError, which says what to write."""
    try:
        requirement = Requirement(text)
    except InvalidRequirement:
        requirement = None
    if requirement is None or requirement.url or requirement.marker:
        problem = f"{text!r} is no package with its versions"
        raise MlmsError(f"{problem}; write one as in 'onnxruntime>=1.17'") from None
    return requirement


def releases_of(
    requirement: Requirement,
    settings: PipSettings,
    pre: bool,
    python: str | None = None,
    named: Collection[Version] = (),
) -> list[Release]:
    """Return the releases of a package that meet a requirement, the newest first.

    ``python`` is the version of another Python that they are for, and ``named`` are those that may
    be yanked, as pip has it. Raises MlmsError where an index can't be read, or has none.
    """
    try:
        files = offered_files(requirement.name, settings, time.monotonic() + _SECONDS)
    except DownloadError as error:
        raise MlmsError(str(error)) from None
    found = select_releases(requirement, files, pre, python, named)
    if not found:
        here = "with a wheel for this Python and platform"
        problem = f"no release of {requirement.name} that is {requirement} {here}"
        offered = sorted({file.version for file in files})
        known = f"it has {offered[0]} to {offered[-1]}" if offered else "it has no such package"
        raise MlmsError(f"{problem} is on the index; {known}")
    return found


def select_releases(
    requirement: Requirement,
    files: Iterable[PackageFile],
    pre: bool,
    python: str | None = None,
    named: Collection[Version] = (),
) -> list[Release]:
    """Return the releases of an index's files that meet a requirement, the newest first.

    They have a wheel for this Python and platform, and are not yanked unless they are ``named``.
    Pre-releases are among them only if they are asked for.
    """
    sizes: dict[Version, int] = {}
    for file in _installable(files, python):
        if file.yanked is not None and file.version not in named:
            continue
        if file.version.is_prerelease and not pre:
            continue
        if requirement.specifier.contains(file.version, prereleases=True):
            sizes.setdefault(file.version, file.size)
    return [Release(requirement.name, one, sizes[one]) for one in sorted(sizes, reverse=True)]


def _installable(files: Iterable[PackageFile], python: str | None) -> Iterator[PackageFile]:
    """Yield the wheels for this Python, or another one, and platform."""
    here = set(sys_tags())
    version = platform.python_version()
    if python is not None:
        release = [int(part) for part in _NUMBER.findall(python)]
        here = {*cpython_tags(release[:2]), *compatible_tags(release[:2])}
        version = ".".join(map(str, [*release, _ANY_PATCH][:3]))
    for file in files:
        if not file.is_wheel:
            continue
        _, _, _, tags = parse_wheel_filename(file.name)
        if not here.isdisjoint(tags) and _is_for(file, version):
            yield file


def _is_for(file: PackageFile, python: str) -> bool:
    """Return whether a file is for a version of Python, by the words of its index."""
    try:
        return SpecifierSet(file.requires_python).contains(python, prereleases=True)
    except InvalidSpecifier:  # which pip passes over as well
        return True
