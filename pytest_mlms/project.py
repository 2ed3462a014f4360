"""The project that a command runs in: pytest's root directory, and our settings in its ini file.

Commands have the settings and the stacks that pytest has. The file is found by pytest's own
``determine_setup`` and read by ``load_config_dict_from_file``, which are private to it, as are the
values that they return: read in pytest 8.4.2, 9.0.2 and 9.2.0.
"""

from __future__ import annotations

import argparse
import inspect
import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from _pytest.config.findpaths import determine_setup, load_config_dict_from_file

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.records import DownloadLimits
from pytest_mlms.core.text import seems_url
from pytest_mlms.options import OPTIONS, Option, below
from pytest_mlms.provide.stacks.declared import NOT_COLLECTED, DeclaredStacks, declared_stacks

_TRUE = ("1", "true", "t", "yes", "y", "on")
_FALSE = ("0", "false", "f", "no", "n", "off")


@dataclass(frozen=True)
class Project:
    """A root directory, its ini file if there is one, and what the file sets, by ini key.

    ``folder`` is the one that the command runs in.
    """

    root: Path
    file: Path | None
    ini: Mapping[str, Any]
    folder: Path

    def value(self, name: str) -> Any:
        """Return an option's value: of ``addopts``, else of its ini key; None where neither has it.

        Paths are absolute. Raises MlmsError for a value that is none of its option, and for folders
        of manifests or predictors that aren't there, as pytest does.
        """
        option = next(option for option in OPTIONS if option.name == name)
        value = self._value(option)
        for path in value if value and name in ("manifests", "predictors") else ():
            if not os.path.exists(path):
                source = f"{option.key} in {self.file}" if self.file else option.key
                raise MlmsError(f"{source}: there is no {path}; name a folder that exists")
        return value

    def _value(self, option: Option) -> Any:
        typed = getattr(self._typed, option.name)
        if typed is not None:
            return _read(option, typed, self.folder)
        value = self.ini.get(option.key)
        if value in (None, "", []):
            return None
        if option.is_switch:
            return self._switch(option, value)
        if option.repeatable and isinstance(value, str):
            value = [line.strip() for line in value.splitlines() if line.strip()]
        return _read(option, value, self.root)

    @property
    def manifests(self) -> tuple[Path, ...]:
        """The folders and files of --mlms-manifests."""
        return self.value("manifests") or ()

    @property
    def history(self) -> str | None:
        """The address of the history that runs are added to; None where there is none."""
        address: str | None = self.value("history")
        if address == "":  # a bare --mlms-history
            results = self.value("results") or Path("mlms-results")
            address = os.environ.get("MLMS_HISTORY") or str(results / "history.sqlite")
        return address

    @property
    def norecursedirs(self) -> Sequence[str]:
        """The patterns of the folders in which pytest collects nothing."""
        value = self.ini.get("norecursedirs", NOT_COLLECTED)
        return shlex.split(value) if isinstance(value, str) else tuple(value)

    @cached_property
    def _typed(self) -> argparse.Namespace:
        """The options in ``addopts`` of the ini file, and in PYTEST_ADDOPTS."""
        parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
        for option in OPTIONS:
            if option.is_switch:
                parser.add_argument(
                    option.flag, dest=option.name, action="store_true", default=None
                )
            else:
                parser.add_argument(
                    option.flag,
                    dest=option.name,
                    action="append" if option.repeatable else "store",
                    nargs=None if option.bare is None else "?",
                    const=option.bare,
                )
        words = self.ini.get("addopts") or []
        if isinstance(words, str):
            words = _split(words, f"addopts in {self.file}")
        return _parsed(parser, [*words, *_words_of_environment()])

    def _switch(self, option: Option, value: Any) -> bool:
        text = str(value).lower()
        if text not in (*_TRUE, *_FALSE):
            problem = f"{option.key} in {self.file}: invalid truth value {value!r}"
            raise MlmsError(f"{problem}; write true or false")
        return text in _TRUE


def _words_of_environment() -> list[str]:
    return _split(os.environ.get("PYTEST_ADDOPTS", ""), "PYTEST_ADDOPTS")


def _split(text: str, source: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise MlmsError(f"{source}: {error} in {text!r}; correct it") from None


def _parsed(parser: argparse.ArgumentParser, words: Sequence[str]) -> argparse.Namespace:
    try:
        return parser.parse_known_args(words)[0]
    except (argparse.ArgumentError, SystemExit) as error:
        raise MlmsError(f"addopts of pytest: {error}; correct them") from None


def _read(option: Option, value: Any, folder: Path) -> Any:
    if option.name == "history":
        is_url = "://" in value or seems_url(value)
        return value if is_url or not value else str(below(folder, value))
    if option.read is Path:
        if option.repeatable:
            return tuple(below(folder, path) for path in value)
        return below(folder, value)
    if option.repeatable or not isinstance(value, str):
        return tuple(value) if option.repeatable else value
    try:
        return option.read(value)
    except argparse.ArgumentTypeError as error:
        raise MlmsError(f"{option.key} of pytest: {error}") from None


def find_project(paths: Iterable[Path] = ()) -> Project:
    """Return the project for which pytest would run these paths from the current folder.

    PYTEST_ADDOPTS may name another ini file, root or value. Raises MlmsError for an ini file that
    can't be read.
    """
    folder = Path.cwd()
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("-c", "--config-file")
    parser.add_argument("--rootdir")
    parser.add_argument("-o", "--override-ini", action="append", default=[])
    chosen = _parsed(parser, _words_of_environment())
    keywords: dict[str, Any] = {
        "inifile": chosen.config_file,
        "override_ini": None,
        "args": [str(path) for path in paths],
        "rootdir_cmd_arg": chosen.rootdir,
        "invocation_dir": folder,
    }
    known = inspect.signature(determine_setup).parameters
    try:
        root, file, ini, *_ = determine_setup(
            **{name: value for name, value in keywords.items() if name in known}
        )
    except (pytest.UsageError, pytest.fail.Exception, OSError, UnicodeDecodeError) as error:
        raise MlmsError(f"the project's settings can't be read: {error}") from None
    overrides = dict(text.split("=", 1) for text in chosen.override_ini if "=" in text)
    return Project(root, file, {**_plain(ini), **overrides}, folder)


def settings_in(file: Path) -> Mapping[str, Any]:
    """Return what an ini file itself sets, without what the command line has in its place."""
    return _plain(load_config_dict_from_file(file) or {})


def _plain(ini: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of pytest's own records, which it has from 9.0 on."""
    return {key: getattr(value, "value", value) for key, value in ini.items()}


def project_stacks(
    paths: Sequence[Path] = (), manifests: Sequence[Path] | None = None
) -> DeclaredStacks:
    """Return the stacks that pytest knows for manifests at ``paths``.

    ``manifests`` are used in place of the ini file's folders. Raises MlmsError.
    """
    project = find_project(paths)
    folders = project.manifests if manifests is None else manifests
    places = [Path(os.path.abspath(path)) for path in (*folders, *paths)]
    return declared_stacks(project.root, places, project.norecursedirs)


def download_limits(project: Project) -> DownloadLimits:
    """Return the limits of downloads that the project's settings have, else ours."""
    names = ("download_size", "download_time", "unpack_limit")
    values = zip(map(project.value, names), DownloadLimits(), strict=True)
    return DownloadLimits(*(default if value is None else value for value, default in values))
