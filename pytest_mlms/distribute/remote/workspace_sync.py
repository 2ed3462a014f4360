"""Transfer of the files that a run needs before its items are known to remote workspaces.

These are manifests, predictors, conftests and the ini file. They keep their places below the
rootdir, so that items have the same ids everywhere. Models and datasets follow when an item asks
for them (see ``artifact_transfer.py``). ``workspace.py`` is the remote host's side.
"""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Iterable, Iterator
from dataclasses import fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from pytest_mlms.config import SENT, Config
from pytest_mlms.distribute.remote.hosts import ANSWER_SECONDS

_ROOT_FILES = ("stacks.yaml", "datasets.yaml", "pyproject.toml", "conftest.py")
_SUFFIXES = (".yaml", ".yml", ".py", ".txt", ".json", ".toml", ".ini", ".cfg")
_LARGEST = 1 << 20  # bytes
_SKIPPED_FOLDERS = ("__pycache__", "node_modules", "mlms-results")

_RECEIVE = "from pytest_mlms.distribute.remote.workspace import receive; receive(channel)"


class WorkspaceSync:
    """The files below the controller's rootdir, as remote workers see them in their workspace."""

    def __init__(self, config: pytest.Config, options: Config) -> None:
        self._config = config
        self._options = options
        self._root = config.rootpath
        self._outside: dict[str, Path] = {}

    @property
    def folder(self) -> str:
        """The folder in the remote home, one for each project of each controller."""
        host = socket.gethostname()
        project = f"{host}:{self._root}"
        return f"pytest-mlms-{_short_digest(project, 12)}"

    def place(self, path: Path) -> str:
        """Return the place of a file or folder in the workspace.

        A folder outside of the rootdir keeps its files together.
        """
        if path.is_relative_to(self._root):
            return path.relative_to(self._root).as_posix()
        for name, folder in self._outside.items():
            if path.is_relative_to(folder):
                relative = path.relative_to(folder)
                return f"{name}/{relative.as_posix()}" if relative.parts else name
        digest = _short_digest(str(path), 8)
        name = f"outside/{digest}/{path.name}"
        self._outside[name] = path
        return name

    def original(self, place: str) -> Path:
        """Return the controller's file of a place in the workspace."""
        for name, folder in self._outside.items():
            if Path(place).is_relative_to(name):
                return folder / Path(place).relative_to(name)
        return self._root / place

    def options(self) -> dict[str, Any]:
        """Return the plugin's options for a remote worker, as plain values."""
        without_cache = replace(self._options, cache=None)
        packed = without_cache.pack(self.place)
        packed["outside"] = {
            name: os.path.relpath(folder, self._root) for name, folder in self._outside.items()
        }
        return packed

    def map_arguments(self, arguments: Iterable[str]) -> list[str]:
        """Return pytest's arguments, with paths replaced by their places in the workspace.

        The address of a history, which may have a password, is left out.
        """
        return [self._map_argument(argument) for argument in arguments]

    def _map_argument(self, argument: str) -> str:
        argument = argument.replace(self._address, "")
        name, separator, node = argument.partition("::")
        if not name or name.startswith("-"):
            return argument
        path = self._absolute(name)
        if not path.exists():
            return argument
        return f"{self.place(path)}{separator}{node}"

    @property
    def _address(self) -> str:
        """The address of a database of histories, which may have a password; "" without one."""
        history = self._options.history or ""
        return history if "://" in history else ""

    @cached_property
    def files(self) -> dict[str, bytes]:
        """The content of the files by their places."""
        found = {}
        for path in self._paths():
            if path.resolve() in self._kept:
                continue
            place = self.place(path)
            found[place] = path.read_bytes().replace(self._address.encode(), b"")
        if self._config.inipath is None:
            found.setdefault("pytest.ini", b"[pytest]\n")
        return found

    def send(self, gateway: Any, run: str) -> None:
        """Make the workspace of a run on the host of an execnet gateway, and its working folder.

        Only the files that the host does not have are sent.
        """
        digests = {}
        contents = {}
        for place, content in self.files.items():
            digest = hashlib.sha256(content).hexdigest()
            digests[place] = digest
            contents[digest] = content
        channel = gateway.remote_exec(_RECEIVE)
        channel.send((run, digests))
        for digest in channel.receive(ANSWER_SECONDS):
            channel.send(contents[digest])
        channel.waitclose(ANSWER_SECONDS)

    def _paths(self) -> Iterator[Path]:
        for root in self._roots():
            self.place(root)  # first, so that a folder outside of the rootdir stays together
            if root.is_dir():
                yield from small_files(root)
            elif root.is_file():
                yield root
            yield from self._conftests_above(root)
        if self._config.inipath:
            yield self._config.inipath
        for name in _ROOT_FILES:
            if (self._root / name).is_file():
                yield self._root / name

    def _roots(self) -> Iterator[Path]:
        """Yield the paths to collect, and the files and folders that options name."""
        for argument in self._config.args:
            # the whole rootdir, the default of pytest, is too much to send
            if Path(argument).absolute() == self._root:
                continue
            name, _, _ = argument.partition("::")
            yield self._absolute(name)
        for name in SENT:
            yield from filter(Path.exists, _paths_of(self._options, name))

    @cached_property
    def _kept(self) -> frozenset[Path]:
        """The files that options name and no worker needs, wherever they are: tokens, documents."""
        names = {option.name for option in fields(self._options)} - set(SENT)
        paths = (path for name in names for path in _paths_of(self._options, name))
        return frozenset(path.resolve() for path in paths)

    def _conftests_above(self, path: Path) -> Iterator[Path]:
        for folder in path.parents:
            conftest = folder / "conftest.py"
            if folder.is_relative_to(self._root) and conftest.is_file():
                yield conftest

    def _absolute(self, name: str) -> Path:
        path = self._config.invocation_params.dir / name
        return Path(os.path.normpath(path))


def _paths_of(options: Config, name: str) -> Iterator[Path]:
    """Yield the paths that are the value of an option."""
    value = getattr(options, name)
    for single in value if isinstance(value, tuple) else (value,):
        if isinstance(single, Path):
            yield single


def small_files(folder: Path) -> Iterator[Path]:
    """Yield the text files of a folder that are transferred; no environments, results or caches."""
    for base, folders, names in os.walk(folder):
        if "pyvenv.cfg" in names:
            folders.clear()
            continue
        folders[:] = [name for name in folders if name[0] != "." and name not in _SKIPPED_FOLDERS]
        for name in names:
            path = Path(base, name)
            if path.suffix not in _SUFFIXES or not path.is_file():
                continue
            if path.stat().st_size <= _LARGEST:
                yield path


def _short_digest(text: str, length: int) -> str:
    sha256 = hashlib.sha256(text.encode())
    return sha256.hexdigest()[:length]
