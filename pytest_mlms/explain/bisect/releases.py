"""The releases of a package between two ends, each in a stack of its own."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.records import Stack
from pytest_mlms.explain.bisect.bisection import Bisection
from pytest_mlms.provide.artifacts.package_index import PipSettings
from pytest_mlms.provide.stacks.declared import package_of
from pytest_mlms.provide.stacks.index import Release, releases_of

_SHOWN_RELEASES = 6


def releases_between(
    good: Requirement,
    bad: Requirement,
    settings: PipSettings,
    pre: bool,
    python: str | None = None,
) -> list[str]:
    """Return the versions from the good one to the bad one.

    They have a wheel for this Python, or the version ``python``, and platform, and but for the ends
    they are not yanked.
    Pre-releases are among them where an end is one. Raises MlmsError where the index lacks an end,
    or they are no two releases of one package.
    """
    ends = _versions_of(good, bad)
    before, after = sorted(ends)
    if before.is_prerelease or after.is_prerelease:
        pre = True
    releases = releases_of(range_of(good.name, ends), settings, pre, python, ends)
    within = [release.version for release in releases if is_within(release.version, ends)]
    found = sorted(within, reverse=ends[0] > ends[1])
    for version in ends:
        if version not in found:
            problem = _not_offered(good.name, version, settings, python)
            raise MlmsError(problem)
    return list(map(str, found))


def range_of(package: str, ends: tuple[Version, Version]) -> Requirement:
    """Return the requirement of releases between two, whose range can't name local versions."""
    before, after = sorted(ends)
    return Requirement(f"{package}>={before.public},<={after.public}")


def is_within(version: Version, ends: tuple[Version, Version]) -> bool:
    """Return whether a version is between two, and of a build of theirs, such as ``+cpu``."""
    before, after = sorted(ends)
    return before <= version <= after and version.local in (before.local, after.local)


def _versions_of(good: Requirement, bad: Requirement) -> tuple[Version, Version]:
    """Return both ends; raises MlmsError where they aren't two releases of one package."""
    name = canonicalize_name(good.name)
    if name != canonicalize_name(bad.name):
        problem = f"--good is of {good.name} and --bad of {bad.name}"
        raise MlmsError(f"{problem}; name two releases of one package, or two lock files")
    before = _exact_version(good)
    after = _exact_version(bad)
    if before == after:
        raise MlmsError(f"--good and --bad are both {good.name} {before}; name two releases")
    return before, after


def _exact_version(requirement: Requirement) -> Version:
    (specifier,) = requirement.specifier
    return Version(specifier.version)


def _not_offered(package: str, version: Version, settings: PipSettings, python: str | None) -> str:
    def distance(release: Release) -> tuple[int, ...]:
        return _distance(release.version, version)

    offered = releases_of(Requirement(package), settings, version.is_prerelease, python)
    near = sorted(offered, key=distance)
    shown = sorted(release.version for release in near[:_SHOWN_RELEASES])
    names = ", ".join(map(str, shown))
    problem = f"the index has no wheel of {package} {version} for this Python and platform"
    return f"{problem}; it has {names}"


def _distance(version: Version, wanted: Version) -> tuple[int, ...]:
    """Return how far a version is from another one, its first numbers first."""
    pairs = zip(version.release, wanted.release, strict=False)
    return tuple(abs(number - other) for number, other in pairs)


def release_stacks(
    package: str,
    versions: Sequence[str],
    framework: str,
    more: Sequence[str],
    taken: Collection[str],
    like: Stack | None = None,
) -> list[Stack]:
    """Return the stack of each release, in their order, by names that are not ``taken``.

    ``more`` are requirements that each stack has beside the release, and ``like`` is the stack
    whose Python, environment, installer and other settings it has. numpy is added where it isn't
    one of them, as agents need it.
    """
    companions = list(more)
    if not _has_numpy([package, *more]):
        companions.append("numpy")
    stacks = []
    for version in versions:
        release = Release(package, Version(version), 0)
        name = release.stack
        while name in taken:
            name += "-again"
        requirements = (release.requirement, *companions)
        stack = like or Stack(name, framework)
        stack = replace(stack, name=name, framework=framework, requirements=requirements)
        stack = replace(stack, lock=None, place=None, several=False)
        stacks.append(stack)
    return stacks


def _has_numpy(requirements: Sequence[str]) -> bool:
    return any(canonicalize_name(package_of(text)) == "numpy" for text in requirements)


def bisect_releases(bisection: Bisection, stacks: Sequence[Stack], limit: int) -> None:
    """Find the release that made it worse; the record has the answer then."""
    answer = bisection.search(stacks, limit)
    bisection.conclude(answer, stacks, bisection.record.releases)
