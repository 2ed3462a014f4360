"""Packages that only some features need: what lacks here, and the line that installs it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, requires, version
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from packaging.requirements import Requirement

INSTALL = "pip install"
"""The words of the advice."""

EXTRAS = {
    "cffi": "library",
    "fastapi": "portal",
    "grpc": "grpc",
    "jinja2": "report",
    "onnx": "onnx",
    "psycopg": "postgresql",
    "sqlalchemy": "history",
    "uvicorn": "portal",
}
"""Package -> the extra that installs it."""

_OURS = "pytest-mlms"


@lru_cache  # each item asks for what a GPU's state needs, where that isn't installed
def install(extra: str, *others: str) -> str:
    """Return the line that installs what an extra lacks here, and ``others``.

    It names the packages themselves: our own name may be a stranger's on an index. Where all are
    installed, one of them is broken, and all are named.
    """
    try:
        needed = list(_requirements(extra))
    except PackageNotFoundError:  # we run from a folder that was never installed
        return shlex.join([*INSTALL.split(), f"PATH_OF_THE_CLONE[{extra}]", *others])
    lacking = [each for each in needed if not _is_installed(each)]
    return shlex.join([*INSTALL.split(), *map(_text, lacking or needed), *others])


def missing_extra(error: ImportError) -> str | None:
    """Return the missing package and how to install it; None for an import of no extra."""
    package = (error.name or "").partition(".")[0]
    if package not in EXTRAS:
        return None
    return f"this needs {package}: {install(EXTRAS[package])}"


def _requirements(extra: str) -> Iterator[Requirement]:
    from packaging.requirements import Requirement

    for requirement in map(Requirement, requires(_OURS) or ()):
        marker = requirement.marker
        if (
            marker is None
            or marker.evaluate({"extra": ""})
            or not marker.evaluate({"extra": extra})
        ):
            continue
        if requirement.name == _OURS:
            for other in sorted(requirement.extras):
                yield from _requirements(other)
        else:
            yield requirement


def _is_installed(requirement: Requirement) -> bool:
    try:
        return requirement.specifier.contains(version(requirement.name), prereleases=True)
    except PackageNotFoundError:
        return False


def _text(requirement: Requirement) -> str:
    extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
    return f"{requirement.name}{extras}{requirement.specifier}"
