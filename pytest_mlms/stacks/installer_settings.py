"""The settings and files beside its declaration that decide which packages a stack gets.

They are in the key of its environment: another index, a changed constraint or a wheel that was
built again make another one.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from pytest_mlms.records import Stack
from pytest_mlms.redaction import redact

__all__ = ["deciding_settings"]

_DECIDING = ("INDEX", "FIND_LINKS", "CONSTRAINT", "OVERRIDE", "BINARY", "PRE", "NO_DEPS", "BUILD")
_DECIDING_OF_UV = ("RESOLUTION", "EXCLUDE_NEWER", "FORK_STRATEGY", "NO_SOURCES")
"""Words in the names of variables of pip and uv that choose packages; others are about the way."""


def deciding_settings(stack: Stack, environment: Mapping[str, str] = os.environ) -> list[str]:
    """Return the settings of a stack's installer, without passwords, and the state of its files."""
    variables = _variables(stack.installer, environment)
    settings = [f"{name}={redact(value)}" for name, value in sorted(variables.items())]
    files = [file for file in _files(stack.installer, environment) if file.is_file()]
    settings += [f"{file.name}: {redact(file.read_text(errors='replace'))}" for file in files]
    places = [word for value in variables.values() for word in value.split()]
    places += [option.partition("=")[2] for option in stack.options]
    places += [requirement.partition(" @ ")[2] for requirement in stack.requirements]
    states = [state for place in places if "/" in place for state in _states(place)]
    return [*settings, *states]


def _variables(installer: str, environment: Mapping[str, str]) -> dict[str, str]:
    words = _DECIDING + (_DECIDING_OF_UV if installer == "uv" else ())
    prefix = f"{installer.upper()}_"
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(prefix) and any(word in name.removeprefix(prefix) for word in words)
    }


def _files(installer: str, environment: Mapping[str, str]) -> Iterator[Path]:
    """Yield the files of settings that an installer reads, where they are by default."""
    home = Path(environment.get("HOME", "~")).expanduser()
    configured = Path(environment.get("XDG_CONFIG_HOME") or home / ".config")
    named = environment.get(f"{installer.upper()}_CONFIG_FILE")
    if named:
        yield Path(named)
    if installer == "uv":
        yield from (configured / "uv" / "uv.toml", Path("/etc/uv/uv.toml"))
        return
    yield from (home / ".pip" / "pip.conf", configured / "pip" / "pip.conf")
    yield from (Path("/etc/pip.conf"), Path("/etc/xdg/pip/pip.conf"), Path(sys.prefix, "pip.conf"))


def _states(place: str) -> Iterator[str]:
    """Yield the digest of a local file, and of a folder the state of each file in it."""
    url = urlsplit(place)
    if url.scheme not in ("", "file"):
        return
    path = Path(unquote(url.path))
    if path.is_file():
        yield hashlib.sha256(path.read_bytes()).hexdigest()
    for file in sorted(path.rglob("*")) if path.is_dir() else ():
        status = file.stat()
        if file.is_file():
            yield f"{file.relative_to(path)} {status.st_size} {status.st_mtime_ns}"
