"""The files that a run needs before its items are known, on each remote host: manifests,
predictors, conftests, ini.

They keep their places below the rootdir, so that items have the same ids everywhere. Small, and
sent by digest: what a host has from an earlier run stays there (see berth.py). Models and datasets
travel when an item asks for them (see travel.py).
"""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Iterator
from dataclasses import fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from pytest_mlms.config import Config
from pytest_mlms.distribute.remote.hosts import ANSWER

__all__ = ["WorkspaceSync"]

_OUTPUTS = ("results", "cache", "benchmark_json", "root")
_OF_ROOT = ("stacks.yaml", "pyproject.toml", "conftest.py")
_SUFFIXES = (".yaml", ".yml", ".py", ".txt", ".json", ".toml", ".ini", ".cfg")
_LARGEST = 1 << 20  # bytes
_SKIPPED = ("__pycache__", "node_modules", "mlms-results")


class WorkspaceSync:
    """What is below the controller's rootdir, as remote workers see it below their working folder."""

    def __init__(self, config: pytest.Config, options: Config) -> None:
        self._config = config
        self._options = options
        self._root = config.rootpath
        self._outside: dict[str, Path] = {}

    @property
    def folder(self) -> str:
        """The folder on a remote host, in the user's home.

        One for each project of each controller.
        """
        name = f"{socket.gethostname()}:{self._root}"
        return f"pytest-mlms-{hashlib.sha256(name.encode()).hexdigest()[:12]}"

    def place(self, path: Path) -> str:
        """Return where a file or a folder is in the mirror."""
        if path.is_relative_to(self._root):
            return path.relative_to(self._root).as_posix()
        for name, root in self._outside.items():
            if path.is_relative_to(root):
                return (Path(name) / path.relative_to(root)).as_posix()
        name = f"outside/{hashlib.sha256(str(path).encode()).hexdigest()[:8]}/{path.name}"
        self._outside[name] = path
        return name

    def original(self, place: str) -> Path:
        """Return the file that a place in the mirror stands for."""
        for name, root in self._outside.items():
            if Path(place).is_relative_to(name):
                return root / Path(place).relative_to(name)
        return self._root / place

    def options(self) -> dict[str, Any]:
        """Return the plugin's options for a remote worker, as plain values."""
        return replace(self._options, cache=None).pack(self.place)

    def arguments(self, arguments: list[str]) -> list[str]:
        """Return pytest's arguments with the paths that they name put into the mirror."""
        made = []
        for argument in arguments:
            path, separator, rest = argument.partition("::")
            found = (
                Path(os.path.normpath(self._config.invocation_params.dir / path)) if path else None
            )
            there = bool(found and not path.startswith("-") and found.exists())
            made.append(f"{self.place(found)}{separator}{rest}" if there and found else argument)
        return made

    @cached_property
    def files(self) -> dict[str, bytes]:
        """The files by their place."""
        found = {self.place(path): path.read_bytes() for path in self._paths()}
        if "/" not in (ini := self._ini()):
            found.setdefault(ini, b"[pytest]\n")
        return found

    def send(self, gateway: Any, run: str) -> None:
        """Make the mirror of a run on the host of a gateway, whose working folder it becomes."""
        channel = gateway.remote_exec(
            "from pytest_mlms.distribute.remote.workspace import receive; receive(channel)"
        )
        digests = {place: hashlib.sha256(data).hexdigest() for place, data in self.files.items()}
        places = {digest: place for place, digest in digests.items()}
        channel.send((run, digests))
        for digest in channel.receive(ANSWER):
            channel.send(self.files[places[digest]])
        channel.waitclose(ANSWER)

    def _ini(self) -> str:
        return self.place(self._config.inipath) if self._config.inipath else "pytest.ini"

    def _paths(self) -> Iterator[Path]:
        roots = [
            Path(os.path.normpath(self._config.invocation_params.dir / arg.split("::")[0]))
            for arg in self._args()
        ]
        roots += [path for path in self._inputs() if path.exists()]
        for root in roots:
            self.place(root)  # a folder outside of the rootdir keeps its files together
            yield from _small_files(root) if root.is_dir() else [root] if root.is_file() else []
            for parent in root.parents:
                if parent.is_relative_to(self._root) and (parent / "conftest.py").is_file():
                    yield parent / "conftest.py"
        if self._config.inipath:
            yield self._config.inipath
        yield from (path for name in _OF_ROOT if (path := self._root / name).is_file())

    def _args(self) -> list[str]:
        """What is collected; all of the rootdir is too much to send."""
        return [
            argument for argument in self._config.args if Path(argument).absolute() != self._root
        ]

    def _inputs(self) -> Iterator[Path]:
        for field in fields(self._options):
            value = getattr(self._options, field.name)
            if field.name not in _OUTPUTS:
                yield from (
                    path
                    for path in (value if isinstance(value, tuple) else [value])
                    if isinstance(path, Path)
                )


def _small_files(folder: Path) -> Iterator[Path]:
    for base, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".") and name not in _SKIPPED]
        if "pyvenv.cfg" in names:
            folders.clear()
            continue
        for name in names:
            path = Path(base, name)
            if path.suffix in _SUFFIXES and path.is_file() and path.stat().st_size <= _LARGEST:
                yield path
