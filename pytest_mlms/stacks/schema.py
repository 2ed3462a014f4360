"""The form of stacks.yaml and of [tool.mlms.stacks] in pyproject.toml, and the stacks that a file
declares.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from packaging.requirements import InvalidRequirement, Requirement
from pydantic import AfterValidator, Field, ValidationError, model_validator

from pytest_mlms.errors import ManifestError
from pytest_mlms.manifest import yaml12
from pytest_mlms.manifest.load import read, shown
from pytest_mlms.manifest.messages import describe
from pytest_mlms.manifest.types import PATTERNS, Closed, Positive
from pytest_mlms.records import Library, Place, Stack

__all__ = ["RESERVED", "STACK_FILES", "StackEntry", "load_stacks"]

STACK_FILES = ("stacks.yaml", "stacks.yml")
RESERVED = {"all": "every stack that is declared"}
"""Names that --mlms-stack has a meaning for."""

_NAME = next(pattern for pattern, text in PATTERNS.items() if text.startswith("letters"))
_PYTHON = "a version in quotes, as in '3.11'"
_OPTIONS = {
    **dict.fromkeys(
        ("--no-deps", "--pre", "--prefer-binary", "--no-build-isolation", "--no-cache-dir"), False
    ),
    **dict.fromkeys(
        ("--index-url", "--extra-index-url", "--find-links", "--only-binary", "--no-binary"), True
    ),
}
"""pip's options that a stack may have, and whether they take a value.

None runs code or writes elsewhere.
"""


def _requirement(text: str) -> str:
    if text.endswith(".whl") and "@" not in text:
        return text
    try:
        return str(Requirement(text))
    except InvalidRequirement:
        raise ValueError(
            f"{text!r} is not a requirement; write one as for pip, as in 'numpy==2.4.6'"
        ) from None


def _option(text: str) -> str:
    name, equals, _ = text.partition("=")
    if _OPTIONS.get(name) is not bool(equals):
        known = ", ".join(
            f"{option}=…" if valued else option for option, valued in _OPTIONS.items()
        )
        raise ValueError(f"{text!r} is not an option that a stack may have; write some of {known}")
    return text


class SystemLibrary(Closed):
    """A library of the system that agents find under another name."""

    library: Annotated[
        str, Field(pattern=r"^[^/]+$", description="its name there, as in libmpi.so.40")
    ]
    package: Annotated[
        str, Field(description="the system's package that has it, as in libopenmpi3")
    ]


class StackEntry(Closed):
    """One stack: an interpreter that is there, or requirements to make an environment of, or a
    container's image.
    """

    framework: str | None = Field(
        None, pattern=_NAME, description="its predictor's name, as in onnxruntime"
    )
    interpreter: str | None = Field(None, min_length=1, description="current, or the path of one")
    python: str | None = Field(None, pattern=r"^\d+\.\d+(\.\d+)?$", description=_PYTHON)
    requirements: list[Annotated[str, AfterValidator(_requirement)]] = []
    installer: Literal["pip", "uv"] = "pip"
    pip_options: list[Annotated[str, AfterValidator(_option)]] = []
    lock: str | None = Field(None, description="a file beside this one")
    container: str | None = Field(
        None, pattern=r"^[A-Za-z0-9]", description="an image, as in name:1"
    )
    libraries: dict[Annotated[str, Field(pattern=r"^[^/]+$")], SystemLibrary] = {}
    env: dict[str, str] = {}
    threads: Positive | None = None
    cores: list[Annotated[int, Field(ge=0)]] = []

    @model_validator(mode="after")
    def _is_one_thing(self) -> StackEntry:
        if self.container and self.requirements:
            raise ValueError(
                "a container has its own packages; leave out 'requirements', or 'container'"
            )
        if self.requirements and self.interpreter:
            raise ValueError(
                "an environment is made with 'python'; leave out 'interpreter', or 'requirements'"
            )
        if not (self.requirements or self.interpreter or self.container):
            raise ValueError(
                "has nothing to run in; write 'requirements: […]', 'interpreter: …' or 'container: …'"
            )
        if not self.framework and (self.requirements or self.container):
            raise ValueError(
                "'framework' is missing; write 'framework: …', the predictor that it is for"
            )
        idle = [
            key
            for key in ("python", "pip_options", "lock")
            if getattr(self, key) and not self.requirements
        ]
        if idle:
            raise ValueError(
                f"{idle[0]!r} is for an environment; write its 'requirements', or leave it out"
            )
        return self

    def stack(self, name: str, folder: Path, place: Place | None = None) -> Stack:
        """Return the stack; its paths are relative to ``folder``."""
        own = self.interpreter
        if own and own != "current" and not self.container:
            own = str(folder / Path(own).expanduser()) if "/" in own else own
        wheels = tuple(
            str(folder / text) if text.endswith(".whl") else text for text in self.requirements
        )
        return Stack(
            name,
            self.framework or "",
            interpreter=own,
            python=self.python,
            requirements=wheels,
            installer=self.installer,
            options=tuple(_located(option, folder) for option in self.pip_options),
            lock=folder / self.lock if self.lock else None,
            container=self.container,
            libraries=tuple(
                Library(key, value.library, value.package) for key, value in self.libraries.items()
            ),
            env=tuple(self.env.items()),
            threads=self.threads,
            cores=tuple(self.cores),
            place=place,
        )


def _located(option: str, folder: Path) -> str:
    name, _, value = option.partition("=")
    return (
        f"{name}={folder / value}"
        if name == "--find-links" and not urlsplit(value).scheme
        else option
    )


def load_stacks(path: Path) -> dict[str, Stack]:
    """Return the stacks that a stacks.yaml or a pyproject.toml declares.

    Raises ManifestError with all faults.
    """
    document = (
        _read_toml(path)
        if path.suffix == ".toml"
        else read(path, "a stack begins with 'name: {framework: …}'")
    )
    faults, found = list(document.faults), {}
    for name, value in (document.value or {}).items():
        entry, wrong = _entry(name, value, document)
        faults += wrong
        if entry:
            found[name] = entry.stack(
                name, path.absolute().parent, Place(shown(path), document.line((name,)))
            )
    if faults:
        raise ManifestError(
            "\n".join(f"{shown(path)}:{line}: {text}" for line, text in sorted(faults))
        )
    return found


def _entry(
    name: str, value: Any, document: yaml12.Document
) -> tuple[StackEntry | None, list[tuple[int, str]]]:
    line = document.line((name,))
    if name in RESERVED:
        return None, [(line, f"{name!r} means {RESERVED[name]}; choose another name")]
    if not re.search(_NAME, name):
        return None, [(line, f"found {name!r}; write a stack's name in {PATTERNS[_NAME]}")]
    try:
        return StackEntry.model_validate(value), []
    except ValidationError as error:
        faults = [
            {**fault, "loc": (name, *fault["loc"])} for fault in error.errors(include_url=False)
        ]
        return None, [describe(fault, document, StackEntry, 1) for fault in faults]  # type: ignore[arg-type]


def _read_toml(path: Path) -> yaml12.Document:
    """Return [tool.mlms.stacks]; a TOML parser keeps no lines, so each stack's is searched for."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        text = path.read_text(encoding="utf-8")
        stacks = tomllib.loads(text).get("tool", {}).get("mlms", {}).get("stacks", {})
    except (OSError, ValueError) as error:
        return yaml12.Document(faults=[(1, f"can't be read: {error}")])
    if not isinstance(stacks, Mapping):
        return yaml12.Document(
            faults=[(1, "tool.mlms.stacks holds no keys and values; write [tool.mlms.stacks.NAME]")]
        )
    document = yaml12.Document(dict(stacks), {(): 1})
    for name, value in stacks.items():
        found = re.search(
            rf"^\s*(\[tool\.mlms\.stacks\.)?[\"']?{re.escape(name)}[\"']?\s*[\]=]",
            text,
            re.MULTILINE,
        )
        _number(document, (name,), value, text.count("\n", 0, found.end()) + 1 if found else 1)
    return document


def _number(document: yaml12.Document, path: yaml12.Path, value: Any, line: int) -> None:
    """Give a value and all in it one line, so that faults can name their keys."""
    document.lines[path] = line
    parts = (
        value.items()
        if isinstance(value, Mapping)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, part in parts:
        _number(document, (*path, key), part, line)
