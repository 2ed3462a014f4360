"""The declared stack whose version of a framework is nearest to the one that a model asks for."""

from __future__ import annotations

from collections.abc import Iterable

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from pytest_mlms.core.records import Stack
from pytest_mlms.provide.stacks.declared import framework_of


def nearest_stack(framework: str, versions: SpecifierSet, stacks: Iterable[Stack]) -> Stack | None:
    """Return the stack that runs a model made for some versions; None where none is declared.

    The newest version that is one of them is taken, or else the oldest of the newer ones, as
    frameworks read the files of older versions more often than the reverse, or else the newest of
    the older ones. A stack that doesn't pin its framework is taken where no stack pins it. Nothing
    of the machine counts, so that the choice is the same on every host.
    """
    own = [stack for stack in stacks if stack.framework == framework]
    pinned: dict[Version, Stack] = {}
    for stack in own:
        version = pinned_version(stack)
        if version is not None:
            pinned.setdefault(version, stack)
    if not pinned:
        return own[0] if own else None
    return pinned[_nearest(versions, list(pinned))]


def _nearest(versions: SpecifierSet, pinned: list[Version]) -> Version:
    fitting = [version for version in pinned if versions.contains(version, prereleases=True)]
    if fitting:
        return max(fitting)
    asked = max(Version(spec.version.removesuffix(".*")) for spec in versions)
    newer = [version for version in pinned if version > asked]
    return min(newer) if newer else max(pinned)


def pinned_version(stack: Stack) -> Version | None:
    """Return the version of its framework that a stack's requirements pin; None without one."""
    for text in stack.requirements:
        try:
            requirement = Requirement(text)
        except InvalidRequirement:  # a wheel's path
            continue
        if framework_of(requirement.name) == stack.framework:
            return _exact(requirement.specifier)
    return None


def _exact(versions: SpecifierSet) -> Version | None:
    for spec in versions:
        if spec.operator == "==":
            try:
                return Version(spec.version.removesuffix(".*"))
            except InvalidVersion:
                return None
    return None
