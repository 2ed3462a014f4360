"""Software of an item as a lock has it, without this plugin and paths of a host."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from pytest_mlms.core.recorded import recorded_launch, without_devices
from pytest_mlms.keep.lockfile.lock import LockedItem, LockedStack
from pytest_mlms.provide.stacks.exact import NOT_IN_AGENTS, ExactSoftware, is_framework
from pytest_mlms.provide.stacks.exact_packages import ExactPackage, parse_package
from pytest_mlms.provide.stacks.programs import programs_of
from pytest_mlms.provide.stacks.trust import harmless_variables

_FILE = "file:"
_FOLDER = "editable folder"


def software_of(line: Mapping[str, Any], folder: Path) -> LockedStack | None:
    """Return the software of an item's line; None where it doesn't tell its packages.

    What a person develops is left out, unless it is the framework. Of the caller's variables it has
    those that mean the same on any host, without the choice of a device. Files that packages were
    installed from are told relative to ``folder``, that of the lock; of those elsewhere the name.
    """
    launch = recorded_launch(line)
    packages = launch.exact
    python = line.get("python")
    if not packages or not (python or programs_of(packages)):
        return None
    kept = set(_portable_lines(packages, line["framework"], folder))
    in_order = sorted(kept, key=str.lower)
    harmless = without_devices(harmless_variables(launch.inherited or {}))
    texts = [f"{name}={value}" for name, value in sorted(harmless.items())]
    return LockedStack(python=python or "", packages=tuple(in_order), variables=tuple(texts))


def exact_software(item: LockedItem, software: LockedStack, folder: Path) -> ExactSoftware:
    """Return the software of an item of the lock in ``folder``, as it is installed again."""
    packages = [_located(line, folder) for line in software.packages]
    return ExactSoftware(item.stack, item.framework, software.python, tuple(packages))


def _portable_lines(packages: Iterable[str], framework: str, folder: Path) -> Iterator[str]:
    """Yield the lines of the packages that a lock has, as any host reads them."""
    for line in packages:
        package = parse_package(line)
        if package is None:
            yield line
        elif package.is_developed:
            if is_framework(package, framework):
                yield f"{package.name}=={package.version} # {_FOLDER}"
        elif package.file is not None:
            yield _line_of_file(package, package.file, folder)
        elif package.key not in NOT_IN_AGENTS:
            yield line


def _line_of_file(package: ExactPackage, file: Path, folder: Path) -> str:
    """Return the line of a package that a local wheel or archive has."""
    place = file.name
    if file.is_relative_to(folder):
        place = file.relative_to(folder).as_posix()
    origin = f"{_FILE}{place}"
    version = package.version or _version_of_wheel(file.name)
    if not version:
        return f"{package.name} @ {origin}"
    return f"{package.name}=={version} # {origin}"


def _version_of_wheel(name: str) -> str:
    """Return the version in a wheel's name; "" for another file."""
    try:
        _, version, _, _ = parse_wheel_filename(name)
    except InvalidWheelFilename:
        return ""
    return str(version)


def _located(line: str, folder: Path) -> str:
    """Return the line with the absolute path of the file that the package was installed from."""
    package = parse_package(line)
    if package is None or not package.origin.startswith(_FILE):
        return line
    place = package.origin.removeprefix(_FILE)
    address = (folder.absolute() / place).as_uri()
    return f"{package.name} @ {address}"
