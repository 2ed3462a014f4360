"""Sides of a bundle: the exact software of a stack as results recorded it."""

from __future__ import annotations

import importlib.metadata
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlms_predictors
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.recorded import recorded_launch, without_devices
from pytest_mlms.core.text import redact
from pytest_mlms.explain.repro.bundle import BundleSide
from pytest_mlms.provide.stacks.exact import (
    ExactSoftware,
    RecordedStack,
    is_framework,
    recreated_stack,
)
from pytest_mlms.provide.stacks.exact_packages import image_of, parse_package
from pytest_mlms.provide.stacks.interpreters import probe
from pytest_mlms.provide.stacks.programs import programs_of
from pytest_mlms.provide.stacks.recorded import declaration_of
from pytest_mlms.provide.stacks.trust import Trust, harmless_variables, trusted_keys

_REMOTE = re.compile(r"--(index-url|extra-index-url|find-links)=https?://\S+")
_FOLDER = re.compile(r"--find-links=(?:file://)?(?P<folder>[^:]+)")
_FILE = "file://"
_IMPORTED = re.compile(r"^\s*(?:import|from)\s+(\w+)", re.MULTILINE)
_OF_BASELINES = ("pip_options", "env", "libraries")
_OF_MACHINES = re.compile("AFFINITY|PLACES|SUBSET")
"""Parts of the names of variables that choose among the cores of a machine."""
_OF_OURS = re.compile(r"\bmlms_predictors(?:\.| import )(\w+)")


@dataclass(frozen=True)
class ExactSide:
    """A side, the wheels that come along with it, and notes on what doesn't."""

    side: BundleSide
    wheels: tuple[Path, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class SideSource:
    """An item's line, and what its sides are made with."""

    line: Mapping[str, Any]
    predictor: Path
    trust: Trust
    cache: Path


def new_side(source: SideSource) -> ExactSide:
    """Return the stack of an item. Raises MlmsError, which names what can't be had elsewhere."""
    python = _python_of(source, "launch", "b")
    return _side({**source.line, "python": python}, source)


def old_side(source: SideSource) -> ExactSide:
    """Return the baseline's stack of an upgrade."""
    line = source.line
    against = line["against"]
    declared = {stack.name: stack for stack in source.trust.stacks}
    stack = declared.get(against["name"])
    own = declaration_of(stack) if stack else _options_of(line)
    of_baseline = {
        "stack": {**against, "declared": {key: own[key] for key in _OF_BASELINES if key in own}},
        "launch": line.get("launch_against"),
        "python": _python_of(source, "launch_against", "a"),
    }
    return _side({**line, **of_baseline}, source)


def _options_of(line: Mapping[str, Any]) -> dict[str, Any]:
    """Return where the item's stack has its packages from: a baseline has them from there, too."""
    declared = line["stack"].get("declared") or {}
    return {"pip_options": declared.get("pip_options") or []}


def _python_of(source: SideSource, launch: str, side: str) -> str:
    """Return the exact Python of a side, also where its agent told nothing before it crashed."""
    line = source.line
    if programs_of(recorded_launch(line, launch).exact):
        problem = f"{line['nodeid']}: an agent of it is a program of its own"
        raise MlmsError(f"{problem}; a bundle has Python packages: measure it in a stack of those")
    for measured in line.get("rounds") or ():
        return str(measured["sides"][side]["python"])
    if side == "b" and line.get("python"):
        return str(line["python"])
    program = source.trust.program(recorded_launch(line, launch), source.cache)
    try:
        return probe(program or "").version
    except MlmsError:
        raise MlmsError(
            f"{line['nodeid']}: the Python of {launch.replace('_', ' ')} is not known, as its "
            f"environment isn't on this machine any more; measure it again"
        ) from None


def _side(line: Mapping[str, Any], source: SideSource) -> ExactSide:
    """Return the side of an item's line, whose launch is that of this side."""
    recorded = RecordedStack.of(line)
    if recorded.missing:
        raise MlmsError(f"stack {recorded.name}: its packages are not known: {recorded.missing}")
    if image_of(recorded.packages):
        problem = f"stack {recorded.name} is the image of a container"
        raise MlmsError(f"{problem}; a bundle has Python packages: measure it in a stack of those")
    if recorded.declared.get("serve") or recorded.declared.get("endpoint"):
        problem = f"stack {recorded.name} has its models on a server"
        raise MlmsError(f"{problem}; a bundle has none: send the run's folder instead")
    packages = recorded.packages
    if not recorded_launch(line).lock:
        packages = tuple(_needed(recorded, source.predictor))
    exact = ExactSoftware(recorded.name, recorded.framework, recorded.python, packages)
    requirements = recreated_stack(recorded.name, exact, source.trust).requirements
    from_where = {"pip_options": recorded.declared.get("pip_options") or ()}
    options = trusted_keys(from_where, source.trust, recorded.name)["pip_options"]
    texts, wheels = _with_wheels(requirements, options)
    side = BundleSide(
        name=_name_of(recorded),
        framework=recorded.framework,
        python=recorded.python,
        requirements=texts,
        options=tuple(_remote(options)),
        variables=tuple(sorted(_given(recorded).items())),
    )
    return ExactSide(side, wheels, tuple(_notes(recorded)))


def _given(recorded: RecordedStack) -> dict[str, str]:
    """Return the variables that a replay sets: those that mean the same on any machine."""
    found = without_devices(harmless_variables(_chosen(recorded)))
    return {name: value for name, value in found.items() if not _OF_MACHINES.search(name)}


def _chosen(recorded: RecordedStack) -> dict[str, str]:
    return {**(recorded.inherited or {}), **(recorded.declared.get("env") or {})}


def _name_of(recorded: RecordedStack) -> str:
    """Return the framework's package with its version; a stack's own name may be a path."""
    for line in recorded.packages:
        package = parse_package(line)
        if package and is_framework(package, recorded.framework):
            return f"{package.name} {package.version}".strip()
    return recorded.framework


def _notes(recorded: RecordedStack) -> Iterator[str]:
    for name in sorted(_chosen(recorded).keys() - _given(recorded).keys()):
        yield f"It was measured with the variable {name}: set it for a replay, too."
    if recorded.declared.get("libraries"):
        yield "A stack had libraries of the system under other names."
    if recorded.driver:
        yield f"It was seen with the GPU's driver {recorded.driver}."


def _remote(options: Iterable[str]) -> Iterator[str]:
    """Yield pip's options that name an address; raises MlmsError for one with a password."""
    for option in options:
        if not _REMOTE.fullmatch(option):
            continue
        if redact(option) != option:
            problem = f"pip's option {redact(option)} has a secret, which a bundle doesn't hold"
            raise MlmsError(f"{problem}; put it into pip's configuration")
        yield option


def _with_wheels(
    requirements: Sequence[str], options: Sequence[str]
) -> tuple[tuple[str, ...], tuple[Path, ...]]:
    """Return requirements without local places, and the wheels that they were installed from."""
    local = _wheels_of(options)
    texts, wheels = [], []
    for text in requirements:
        name, separator, address = text.partition(" @ ")
        if separator and address.startswith(_FILE):
            wheel = Path(address.removeprefix(_FILE))
            texts.append(f"{name}=={_key_of(wheel)[1]}")
            wheels.append(wheel)
            continue
        if separator and redact(address) != address:
            problem = f"{name} was installed from an address with a secret"
            raise MlmsError(f"{problem}, which a bundle doesn't hold; install it from an index")
        name, _, version = text.partition("==")
        found = local.get((canonicalize_name(name), version))
        texts.append(text)
        wheels += [found] if found else []
    return tuple(texts), tuple(wheels)


def _wheels_of(options: Iterable[str]) -> dict[tuple[str, str], Path]:
    """Return the wheels in local folders of links by name and version."""
    found = {}
    for option in options:
        match = _FOLDER.fullmatch(option)
        for wheel in sorted(Path(match["folder"]).glob("*.whl")) if match else ():
            found[_key_of(wheel)] = wheel
    return found


def _key_of(wheel: Path) -> tuple[str, str]:
    """Return the name and the version of a wheel; raises MlmsError for another file."""
    try:
        name, version, _, _ = parse_wheel_filename(wheel.name)
    except InvalidWheelFilename:
        problem = f"{wheel.name} was installed from a local file that is no wheel"
        raise MlmsError(f"{problem}; build a wheel of it, and measure with that") from None
    return canonicalize_name(name), str(version)


def _needed(recorded: RecordedStack, predictor: Path) -> Iterator[str]:
    """Yield the packages of an interpreter that a predictor needs; all, if that isn't known.

    The interpreter that runs pytest has pytest and more, which no agent imports.
    """
    versions = _installed_here()
    lines = {}
    for line in recorded.packages:
        package = parse_package(line)
        if package is None or versions.get(package.key) != package.version:
            yield from recorded.packages
            return
        lines[package.key] = line
    wanted = _closure(_roots(recorded, predictor))
    for key, line in lines.items():
        if key in wanted:
            yield line


def _installed_here() -> dict[str, str]:
    found: dict[str, str] = {}
    for distribution in importlib.metadata.distributions():
        name = distribution.metadata["Name"]
        if name:
            found.setdefault(str(canonicalize_name(name)), distribution.version)
    return found


def _roots(recorded: RecordedStack, predictor: Path) -> set[str]:
    """Return the distributions of the modules that a predictor imports, and the framework's."""
    providers = importlib.metadata.packages_distributions()
    found = {"numpy"}
    for module in _imported_by(predictor) - set(sys.stdlib_module_names):
        found |= {str(canonicalize_name(name)) for name in providers.get(module, ())}
    for line in recorded.packages:
        package = parse_package(line)
        if package and is_framework(package, recorded.framework):
            found.add(package.key)
    return found - {"pytest-mlms"}


def _imported_by(predictor: Path) -> set[str]:
    """Return the modules that a predictor imports, also by another predictor of ours."""
    text = predictor.read_text(encoding="utf-8", errors="replace")
    found = set(_IMPORTED.findall(text))
    for name in _OF_OURS.findall(text):
        other = Path(str(mlms_predictors.__file__)).with_name(f"{name}.py")
        if other.is_file() and other != predictor:
            found |= _imported_by(other)
    return found


def _closure(roots: Iterable[str]) -> set[str]:
    """Return distributions with all that they require here."""
    found: set[str] = set()
    left = list(roots)
    while left:
        name = left.pop()
        if name in found:
            continue
        found.add(name)
        left += _required_by(name)
    return found


def _required_by(name: str) -> Iterator[str]:
    try:
        texts = importlib.metadata.requires(name) or ()
    except importlib.metadata.PackageNotFoundError:
        return
    for text in texts:
        try:
            requirement = Requirement(text)
        except InvalidRequirement:
            continue
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield str(canonicalize_name(requirement.name))
