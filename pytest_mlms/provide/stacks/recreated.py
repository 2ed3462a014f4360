"""Stacks declared anew from the exact software of one that ran before."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from pytest_mlms.core.errors import StackError
from pytest_mlms.core.records import Stack
from pytest_mlms.core.redaction import redact
from pytest_mlms.provide.stacks.declared import framework_of
from pytest_mlms.provide.stacks.exact_packages import (
    Difference,
    ExactPackage,
    differing_packages,
    image_of,
    parse_package,
)
from pytest_mlms.provide.stacks.trust import TRUST_OPTION, Trust, check_python, is_release

NOT_IN_AGENTS = ("pip", "pytest-mlms", "uv")
"""Distributions that install packages, or run beside agents: none is in the way of an agent."""

_TRUST = f"declare the stack in stacks.yaml, or trust the run by {TRUST_OPTION},"
_COMMIT = re.compile(r"@[0-9a-f]{40}$")


@dataclass(frozen=True)
class ExactSoftware:
    """The software of a stack that ran, as results have it.

    ``stack`` is its name and ``python`` the version, such as 3.11.7. ``packages`` are the lines of
    ``launch.lock`` or ``launch.packages``.
    """

    stack: str
    framework: str
    python: str
    packages: tuple[str, ...]


def recreated_stack(
    name: str, exact: ExactSoftware, trust: Trust, like: Stack | None = None
) -> Stack:
    """Return a stack of this name with the exact packages and Python of one that ran.

    ``like`` is the stack of that time as it is declared, where that is known: its variables,
    libraries, threads, cores, installer and addresses are used. Nothing is resolved anew
    (--no-deps). What a person develops is left out unless it is the framework. Raises StackError,
    which names the package that can't be had again, or that ``trust`` doesn't take.
    """
    base = like or Stack(exact.stack, exact.framework)
    base = replace(base, name=name, framework=exact.framework, place=None, several=False)
    image = image_of(exact.packages)
    if image:
        if not (trust.takes_image(image) and (trust.everything or base.container)):
            raise _cannot(exact, f"it ran in the image {image}", f"{_TRUST} to use that")
        return replace(base, container=image)
    check_python(exact.python, exact.stack)
    options = [option for option in base.options if option != "--no-deps"]
    return replace(
        base,
        interpreter=None,
        container=None,
        python=exact.python,
        requirements=tuple(_requirements(exact, trust)),
        options=(*options, "--no-deps"),
        lock=None,
    )


def _requirements(exact: ExactSoftware, trust: Trust) -> Iterator[str]:
    if not exact.packages:
        raise _cannot(exact, "its packages are not known", "measure it anew, which records them")
    for line in exact.packages:
        package = parse_package(line)
        if package is None:
            problem = f"{line!r} names no package and version"
            raise _cannot(exact, problem, "measure it anew with a release of it")
        if _is_needed(package, exact):
            yield _requirement(package, exact, trust)


def _is_needed(package: ExactPackage, exact: ExactSoftware) -> bool:
    if package.key in NOT_IN_AGENTS:
        return False
    return not package.is_developed or is_framework(package, exact.framework)


def is_framework(package: ExactPackage, framework: str) -> bool:
    """Return whether a package is a distribution of the framework."""
    return framework_of(package.key) == framework


def _requirement(package: ExactPackage, exact: ExactSoftware, trust: Trust) -> str:
    """Return what pip is asked for. Raises StackError where it can't be had."""
    if not package.origin:
        if not is_release(package):
            problem = f"{package.version!r} is no version of {package.name}"
            raise _cannot(exact, problem, "measure it anew with a release of it")
        return f"{package.name}=={package.version}"
    if package.is_developed:
        problem = f"{package.name} was installed from a folder ({package.origin})"
        raise _cannot(exact, problem, "measure it anew with a wheel or a release of it")
    if not package.address:
        problem = f"{package.name} {package.version} was installed by {package.origin}"
        raise _cannot(exact, problem, "measure it anew in an environment of pip or uv")
    if not trust.takes_address(package):
        problem = f"results have {package.name} from {redact(package.address)}"
        raise _cannot(exact, problem, f"{_TRUST} to install it from there")
    if package.file and not package.file.is_file():
        problem = f"{package.name} was installed from {package.file}, which isn't there"
        raise _cannot(exact, problem, "put it back, or measure it anew with a release of it")
    address = package.address
    if _COMMIT.search(address) and not address.startswith("git+"):
        address = f"git+{address}"
    return f"{package.name} @ {address}"


def _cannot(exact: ExactSoftware, problem: str, advice: str) -> StackError:
    return StackError(f"stack {exact.stack} can't be made again: {problem}; {advice}")


def changed_packages(before: Sequence[str], after: Sequence[str]) -> list[Difference]:
    """Return the packages of agents that differ between two stacks.

    None where the packages of either aren't known.
    """
    if not before or not after:
        return []
    found = differing_packages(before, after)
    return [each for each in found if each.package not in NOT_IN_AGENTS]
