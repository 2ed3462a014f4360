"""The settings and files beside its declaration that decide which packages a stack gets.

They are in the key of its environment: another index, a changed constraint or a wheel that was
built again make another one.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import stat
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

from pytest_mlms.core.records import Stack
from pytest_mlms.core.text import redact
from pytest_mlms.manifest.digests import digest_of
from pytest_mlms.provide.stacks.variables import is_secret_name

_DECIDING = (
    *("INDEX", "FIND_LINKS", "CONSTRAINT", "OVERRIDE", "BINARY", "PRE", "NO_DEPS", "BUILD"),
    *("RESOLUTION", "EXCLUDE_NEWER", "FORK_STRATEGY", "NO_SOURCES", "TORCH_BACKEND"),
)
"""Words in the names of settings of pip and uv that choose packages; others are about the way."""

_NAMING = ("INDEX", "FIND_LINKS", "CONSTRAINT", "OVERRIDE", "URL")
"""Words in the names of settings whose values may be files and folders; others are of packages."""

_OF_PROJECTS = ("uv.toml", "pyproject.toml")
_OF_UV = re.compile(r"^\[+tool\.uv\b[^\n]*\n(?:(?!\[).*\n?)*", re.MULTILINE)
"""The tables of uv in a pyproject.toml."""
_SETTING = re.compile(r"\s*([\w-]+)\s*[=:](?!/)(.*)")
_WORD = re.compile(r"""[^\s'",\[\]]+""")
_WRITTEN = re.compile(r"\..*|build|dist|__pycache__|.*\.egg-info")
_SOURCE = re.compile(
    r""".*\.(py[ixd]?|pxi|toml|cfg|in|c|cc|cpp|cxx|cuh?|h|hh|hpp|hxx|inc|inl|rs|go|f|f90|cmake|so|proto)
    | CMakeLists\.txt | Makefile | meson\..* | .*requirements.*\.txt | Cargo\.lock | VERSION.*""",
    re.VERBOSE,
)
"""Names of files that packages are built from."""


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
    named = [option.partition("=") for option in stack.options]
    named += [(name, "=", value) for name, value in variables.items()]
    places = [place for name, _, value in named if _has(name, _NAMING) for place in _words(value)]
    places += [place for text in texts.values() for place in _places(text)]
    places += [word for text in stack.requirements for word in text.partition("@")[2].split()[:1]]
    states: list[str] = []
    for place in places:
        # What can't be read, no installer reads, either.
        with contextlib.suppress(OSError, ValueError, RuntimeError):
            states += _states(place)
    return [*map(redact, settings), *states]


def _is_deciding(name: str) -> bool:
    """Return whether a setting chooses packages, by its name; none that is a secret does."""
    return _has(name, _DECIDING) and not is_secret_name(name)


def _has(name: str, words: Sequence[str]) -> bool:
    upper = name.upper().replace("-", "_")
    return any(word in upper for word in words)


def _texts(installer: str, environment: Mapping[str, str]) -> Iterator[tuple[Path, str]]:
    """Yield the files of settings that an installer reads, where they are by default."""
    home = Path(os.path.expanduser(environment.get("HOME", "~")))
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
    """Yield the words of settings that name files; a value may go on in further lines."""
    is_naming = False
    for line in text.splitlines():
        setting = _SETTING.match(line)
        if setting or line.startswith("["):
            is_naming = setting is not None and _has(setting[1], _NAMING)
        if is_naming:
            yield from _words(setting[2] if setting else line)


def _words(value: str) -> Iterator[str]:
    """Yield what may be a place; uv takes an index as NAME=PLACE, too."""
    for word in _WORD.findall(value):
        yield word
        yield from filter(None, [word.partition("=")[2]])


def _states(place: str) -> Iterator[str]:
    """Yield the digest of a local file or project, and of a folder the state of its packages."""
    url = urlsplit(place)
    if url.scheme not in ("", "file"):
        return
    path = Path(unquote(url.path)).expanduser()
    if path.is_file():
        yield digest_of_file(path)
    elif any((path / name).is_file() for name in ("pyproject.toml", "setup.py")):
        yield _digest_of_project(str(path))
    elif path.is_dir():  # of packages, of which those in folders in it are not offered
        for file in sorted(filter(Path.is_file, path.iterdir())):
            status = file.stat()
            yield f"{file.name} {status.st_size} {status.st_mtime_ns}"


def digest_of_file(path: Path) -> str:
    """Return the digest of a file, which is read again where it changed: each item asks for it."""
    return _digest_now(str(path), os.stat(path))


def _digest_now(path: str, status: os.stat_result) -> str:
    return _digest_of_state(path, status.st_ino, status.st_size, status.st_ctime_ns)


@lru_cache(maxsize=1 << 17)
def _digest_of_state(path: str, inode: int, size: int, changed: int) -> str:
    return digest_of(Path(path))


def _digest_of_project(folder: str) -> str:
    digest = hashlib.sha256()
    for path in _sources(folder):
        with contextlib.suppress(OSError):  # removed, or for no installer to read
            status = os.stat(path)
            if stat.S_ISREG(status.st_mode):
                found = f"{path[len(folder) :]} {_digest_now(path, status)}\n"
                digest.update(os.fsencode(found))
    return digest.hexdigest()


def _sources(folder: str) -> Iterator[str]:
    """Yield the files that a package is built from, not what building and running it writes.

    Below a folder that is imported these are all files; tests write there.
    """
    packages = set()
    for root, folders, files in os.walk(folder):
        is_package = "__init__.py" in files or os.path.dirname(root) in packages
        if is_package and root != folder and os.path.basename(root) not in ("test", "tests"):
            packages.add(root)
        folders[:] = [name for name in sorted(folders) if _is_of_sources(root, name)]
        for name in sorted(files):
            if root in packages or _SOURCE.fullmatch(name):
                yield os.path.join(root, name)


def _is_of_sources(root: str, name: str) -> bool:
    folder = os.path.join(root, name)
    if _WRITTEN.fullmatch(name) and not os.path.exists(os.path.join(folder, "__init__.py")):
        return False
    return not os.path.exists(os.path.join(folder, "pyvenv.cfg"))
