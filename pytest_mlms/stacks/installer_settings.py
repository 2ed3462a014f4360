"""The settings and files beside its declaration that decide which packages a stack gets.

They are in the key of its environment: another index, a changed constraint or a wheel that was
built again make another one.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from pytest_mlms.records import Stack
from pytest_mlms.redaction import redact
from pytest_mlms.stacks.variables import is_secret_name

__all__ = ["deciding_settings"]

_DECIDING = (
    *("INDEX", "FIND_LINKS", "CONSTRAINT", "OVERRIDE", "BINARY", "PRE", "NO_DEPS", "BUILD"),
    *("RESOLUTION", "EXCLUDE_NEWER", "FORK_STRATEGY", "NO_SOURCES", "TORCH_BACKEND"),
)
"""Words in the names of settings of pip and uv that choose packages; others are about the way."""

_OF_PROJECTS = ("uv.toml", "pyproject.toml")
_OF_UV = re.compile(r"^\[+tool\.uv\b[^\n]*\n(?:(?!\[).*\n?)*", re.MULTILINE)
"""The tables of uv in a pyproject.toml."""
_WORD = re.compile(r"""[^\s'",\[\]]+""")
_WRITTEN = re.compile(r"\..*|build|dist|__pycache__|.*\.egg-info")
_SOURCES = {
    *(".py", ".pyi", ".pyx", ".pxd", ".toml", ".cfg", ".in", ".c", ".cc", ".cpp", ".cxx", ".cu"),
    *(".h", ".hpp", ".rs", ".f", ".f90", ".cmake", ".so"),
}
"""The suffixes of what packages are built from."""


def deciding_settings(stack: Stack, environment: Mapping[str, str] = os.environ) -> list[str]:
    """Return the settings of a stack's installer, without passwords, and the state of its files."""
    variables = {
        name: value
        for name, value in sorted(environment.items())
        if name.startswith(f"{stack.installer.upper()}_") and _is_deciding(name)
    }
    texts = dict(_texts(stack.installer, environment))
    settings = [f"{name}={value}" for name, value in variables.items()]
    settings += [f"{file.name}: {text}" for file, text in texts.items()]
    places = [word for value in variables.values() for word in value.split()]
    places += [place for text in texts.values() for place in _places(text)]
    places += [option.partition("=")[2] for option in stack.options]
    places += [requirement.partition(" @ ")[2] for requirement in stack.requirements]
    states: list[str] = []
    for place in filter(None, places):
        with contextlib.suppress(
            OSError, ValueError, RuntimeError
        ):  # no installer reads it, either
            states += _states(place)
    return [*map(redact, settings), *states]


def _is_deciding(name: str) -> bool:
    """Return whether a setting chooses packages, by its name; none that is a secret does."""
    upper = name.upper().replace("-", "_")
    return any(word in upper for word in _DECIDING) and not is_secret_name(upper)


def _texts(installer: str, environment: Mapping[str, str]) -> Iterator[tuple[Path, str]]:
    """Yield the files of settings that an installer reads, where they are by default."""
    home = Path(environment.get("HOME", "~")).expanduser()
    configured = Path(environment.get("XDG_CONFIG_HOME") or home / ".config")
    files = [Path(environment.get(f"{installer.upper()}_CONFIG_FILE", os.devnull))]
    if installer == "uv":
        files += [configured / "uv" / "uv.toml", Path("/etc/uv/uv.toml")]
        here = Path.cwd()
        files += [each / name for each in (here, *here.parents) for name in _OF_PROJECTS]
    else:
        files += [home / ".pip" / "pip.conf", configured / "pip" / "pip.conf"]
        files += [
            Path("/etc/pip.conf"),
            Path("/etc/xdg/pip/pip.conf"),
            Path(sys.prefix, "pip.conf"),
        ]
    for file in files:
        try:
            text = file.read_text(errors="replace") if file.is_file() else ""
        except OSError:  # an installer can't read it, either
            continue
        if file.name == "pyproject.toml":
            text = "".join(_OF_UV.findall(text))
        if text:
            yield file, text


def _places(text: str) -> Iterator[str]:
    """Yield the words of settings that choose packages; a value may go on in further lines."""
    is_deciding = False
    for line in text.splitlines():
        key, equals, value = line.partition("=")
        is_deciding = _is_deciding(key) if equals else is_deciding
        if is_deciding:
            yield from _WORD.findall(value if equals else line)


def _states(place: str) -> Iterator[str]:
    """Yield the digest of a local file, and of a folder the state of what is taken from it."""
    url = urlsplit(place)
    if url.scheme not in ("", "file"):
        return
    path = Path(unquote(url.path)).expanduser()
    if path.is_file():
        yield hashlib.sha256(path.read_bytes()).hexdigest()
    elif any((path / name).is_file() for name in ("pyproject.toml", "setup.py")):
        for file in _sources(path):
            yield f"{file.relative_to(path)} {hashlib.sha256(file.read_bytes()).hexdigest()}"
    elif path.is_dir():  # of packages, of which those in folders in it are not offered
        for file in sorted(filter(Path.is_file, path.iterdir())):
            status = file.stat()
            yield f"{file.name} {status.st_size} {status.st_mtime_ns}"


def _sources(folder: Path) -> Iterator[Path]:
    """Yield the files that a package is built from, not what building and running it writes."""
    for root, folders, files in os.walk(folder):
        kept = [name for name in folders if not _WRITTEN.fullmatch(name)]
        folders[:] = [name for name in sorted(kept) if not Path(root, name, "pyvenv.cfg").exists()]
        paths = [Path(root, name) for name in sorted(files)]
        yield from (path for path in paths if path.suffix in _SOURCES and path.is_file())
