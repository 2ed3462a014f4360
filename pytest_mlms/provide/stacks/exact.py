"""The exact software of a stack that ran, as results have it, and stacks declared anew from it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from pytest_mlms.core.errors import StackError
from pytest_mlms.core.recorded import recorded_launch
from pytest_mlms.core.records import Stack
from pytest_mlms.core.text import redact
from pytest_mlms.provide.stacks.declared import framework_of
from pytest_mlms.provide.stacks.exact_packages import (
    Difference,
    ExactPackage,
    differing_packages,
    image_of,
    parse_package,
)
from pytest_mlms.provide.stacks.programs import program_lines, programs_of
from pytest_mlms.provide.stacks.trust import TRUST_OPTION, Trust, check_python, is_release

NOT_IN_AGENTS = ("pip", "pytest-mlms", "uv")
"""Distributions that install packages, or run beside agents: none is in the way of an agent."""

_TRUST = f"declare the stack in stacks.yaml, or trust the run by {TRUST_OPTION},"
_COMMIT = re.compile(r"@[0-9a-f]{40}$")
_ENVIRONMENT = (
    *("agent", "env", "env_passthrough", "libraries", "options", "variant"),
    *("serve", "endpoint"),
)
"""The declared keys that are no packages and change what a stack does."""


@dataclass(frozen=True)
class RecordedStack:
    """A stack as an item's line of results.jsonl has it.

    Attributes:
        name: Its name.
        framework: The framework that the item ran.
        python: The exact version of Python.
        packages: The exact packages, a line each, without those that no agent imports.
        missing: The reason why there are no packages, or empty.
        declared: The keys of stacks.yaml that declare it, as far as ``trusted_keys`` takes them.
        threads: The number of threads that was asked for; None for the framework's own choice.
        cores: The cores that its agents were held to; empty for all.
        driver: The version of the GPU's driver; empty for an item on the CPU.
        inherited: The variables by which its caller changed what was measured; None if unknown.
    """

    name: str
    framework: str
    python: str
    packages: tuple[str, ...]
    missing: str
    declared: Mapping[str, Any]
    threads: int | None
    cores: tuple[int, ...]
    driver: str
    inherited: Mapping[str, str] | None = None

    @classmethod
    def of(cls, line: Mapping[str, Any]) -> RecordedStack:
        """Return the stack of an item's line."""
        stack = line["stack"]
        launch = recorded_launch(line)
        missing = launch.lacking or "the run doesn't tell them"
        return cls(
            name=stack["name"],
            framework=line["framework"],
            python=line.get("python") or "",
            packages=tuple(_of_agents(launch.exact)),
            missing="" if launch.exact else missing,
            declared=_declared(line),
            threads=stack.get("threads"),
            cores=tuple(stack.get("cores") or ()),
            driver=_driver_of(line),
            inherited=launch.inherited,
        )

    @cached_property
    def identity(self) -> str:
        """A text that two stacks share where nothing differs that can change a measurement."""
        environment = {key: self.declared.get(key) for key in _ENVIRONMENT}
        software = (self.framework, self.python, self.packages, self.driver)
        parts = (software, environment, self.threads, self.cores, self.inherited)
        return json.dumps(parts, sort_keys=True)

    @property
    def developed(self) -> list[str]:
        """The names of packages that were installed from a folder, whose code may be any."""
        parsed = map(parse_package, self.packages)
        return [package.name for package in parsed if package and package.is_developed]

    def differences(self, after: RecordedStack) -> list[str]:
        """Return what differs in ``after``, a text each, as in "numpy 2.3.0 → 2.4.6"."""
        found = []
        if self.python != after.python:
            found.append(f"Python {self.python} → {after.python}")
        if self.driver != after.driver:
            old = self.driver or "none"
            new = after.driver or "none"
            found.append(f"driver {old} → {new}")
        found += map(str, differing_packages(self.packages, after.packages))
        old_variables, new_variables = self.inherited or {}, after.inherited or {}
        for name in sorted(old_variables.keys() | new_variables.keys()):
            values = [
                variables.get(name, "not set") for variables in (old_variables, new_variables)
            ]
            if values[0] != values[1]:
                found.append(f"${name} {values[0]} → {values[1]}")
        for key in _ENVIRONMENT:
            if self.declared.get(key) != after.declared.get(key):
                found.append(f"{key} of the stack")
        if self.threads != after.threads or self.cores != after.cores:
            found.append("threads or cores of the stack")
        return found


def _driver_of(line: Mapping[str, Any]) -> str:
    """Return the version of the GPU's driver; "" for an item on the CPU."""
    device = str(line["device"])
    if device.startswith("cpu"):
        return ""
    driver = line["machine"].get("gpu_driver")
    return str(driver or "unknown")


def _of_agents(packages: Iterable[str]) -> Iterator[str]:
    """Yield the packages without this plugin and installers."""
    for line in packages:
        package = parse_package(line)
        if package is None or package.key not in NOT_IN_AGENTS:
            yield line


def _declared(line: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys that declare a stack which runs the model of a line and no other variant."""
    variant = {"variant": line["variant"]} if line.get("variant") else {}
    return {**(line["stack"].get("declared") or {}), **variant}


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
    programs = programs_of(exact.packages)
    if programs:
        if base.agent and program_lines(base) == programs:
            return base
        names = ", ".join(programs)
        raise _cannot(exact, f"it ran {names}", "declare a stack whose agent is this very file")
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


def framework_releases(
    framework: str, packages: Sequence[Sequence[str]], told: Sequence[Mapping[str, str]]
) -> Difference | None:
    """Return the package of a framework whose releases differ between A and B; None for none.

    ``packages`` are the exact ones of either side, a line each, and ``told`` the versions that
    agents told, by framework. Raises StackError where it isn't a release of an index on both sides:
    an index that is asked for it may have a stranger's package of that name.
    """
    found = [_of_framework(framework, lines) for lines in packages]
    old, new = found
    for name in sorted(old.keys() & new.keys()):
        if old[name] == new[name]:
            continue
        for side, package in zip("AB", (old[name], new[name]), strict=True):
            if package.origin or not is_release(package):
                raise StackError(f"{name} of {side} was installed {_place_of(package)}")
        return Difference(name, old[name].version, new[name].version)
    versions = [
        {version for name, version in side.items() if framework_of(name) == framework}
        for side in told
    ]
    if old.keys() != new.keys() or len(set(map(frozenset, versions))) > 1:
        a, b = (", ".join(sorted(names)) or "none that pip lists" for names in found)
        raise StackError(f"the packages of {framework} are {a} in A, and {b} in B")
    return None


def _of_framework(framework: str, packages: Iterable[str]) -> dict[str, ExactPackage]:
    """Return the distributions of a framework by name."""
    parsed = filter(None, map(parse_package, packages))
    return {package.key: package for package in parsed if is_framework(package, framework)}


def _place_of(package: ExactPackage) -> str:
    """Return where a package that no index has came from, without the place."""
    if package.is_developed:
        return "from a folder"
    if package.file:
        return "from a file"
    if package.address:
        return "from an address"
    return f"by {package.origin}" if package.origin else f"with the version {package.version!r}"


def _cannot(exact: ExactSoftware, problem: str, advice: str) -> StackError:
    return StackError(f"stack {exact.stack} can't be made again: {problem}; {advice}")


def changed_packages(before: Sequence[str], after: Sequence[str]) -> list[Difference]:
    """Return the packages of agents that differ between two stacks.

    None where the packages of either aren't known, and between a program and an interpreter.
    """
    if not before or not after or bool(programs_of(before)) != bool(programs_of(after)):
        return []
    found = differing_packages(before, after)
    return [each for each in found if each.package not in NOT_IN_AGENTS]
