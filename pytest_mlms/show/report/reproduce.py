"""Command that runs one item again, with the options of this run that decide what it does."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from pytest_mlms.core.text import redact
from pytest_mlms.options import OPTIONS, Option, read_share, share_text

_KEPT = (
    "manifests",
    "stack",
    "env_passthrough",
    "endpoint",
    "predictors",
    "cache",
    "download_size",
    "download_time",
    "unpack_limit",
    "processes",
    "duration",
    "full",
    "budget",
    "loadgen",
    "outputs",
    "seed",
    "soak",
    "rounds",
    "against",
    "aa",
    "tolerance",
    "gate",
    "clock",
    "timeout",
    "allow_code",
    "trace",
    "trace_functions",
    "trace_on_fail",
    "strict",
)
"""Options that decide what an item does.

Whoever reproduces an item must not push its results, add them to a team's history, or remove runs.
A model without a manifest has its draft in the run's folder, which the node id names.
"""


_WITHOUT_EFFECT = (
    *("cache_dir", "console_output_style", "faulthandler_", "junit_", "log_"),
    *("tmp_path_retention_", "verbosity_"),
    *("strict_config", "strict_markers"),  # which pytest 9 sets for --strict-markers in addopts
)
"""The beginnings of pytest's own ini keys that change nothing of what an item measures."""


def reproduce_command(item: pytest.Item) -> str:
    """Return the command, for the folder that pytest was started in, without secrets."""
    return command_for(item.nodeid, item.path, item.config)


def command_for(nodeid: str, path: Path, config: pytest.Config) -> str:
    """Return the command for the item of a node id and a file."""
    words = ["pytest", *_options_of_pytest(config)]
    for option in OPTIONS:
        if option.name == "manifests":
            words += _words(option, _needed_manifests(path, config))
        elif option.name in _KEPT:
            words += _words(option, config.getoption(option.key, None))
    words += _stack_of_drafts(config)
    words.append(_node(nodeid, path, config))
    return shlex.join(map(redact, words))


def _options_of_pytest(config: pytest.Config) -> Iterator[str]:
    """Yield the options that say where pytest reads its own options."""
    file = config.getoption("inifilename", None)
    if file:
        yield f"-c{file}"
    root = config.getoption("rootdir", None)
    if root:
        yield f"--rootdir={root}"
    left_out = {option.key for option in OPTIONS if option.name not in _KEPT}
    for override in config.getoption("override_ini", None) or ():
        key = override.partition("=")[0]
        if key not in left_out and not key.startswith(_WITHOUT_EFFECT) and _overrides(key, config):
            yield f"-o{override}"


def _overrides(key: str, config: pytest.Config) -> bool:
    """Return False for addopts that the ini file doesn't have, which nothing has to leave out."""
    if key != "addopts" or config.inipath is None:
        return key != "addopts"
    from pytest_mlms.project import settings_in

    return bool(settings_in(config.inipath).get("addopts"))


def _needed_manifests(path: Path, config: pytest.Config) -> list[str]:
    """Return the folders of --mlms-manifests without which the item, or a stack, isn't found.

    The path of an item below the root says where it is, and where its own stacks are.
    """
    folders: list[str] = config.getoption("mlms_manifests", None) or []
    if not path.is_relative_to(config.rootpath):
        return folders
    hidden = tuple(config.getini("norecursedirs"))
    known = _stack_files(config.rootpath, path, hidden)
    needed = []
    for name in folders:
        folder = (config.invocation_params.dir / os.path.expanduser(name)).resolve()
        if _stack_files(config.rootpath, folder, hidden) - known:
            needed.append(name)
    return needed


@lru_cache(maxsize=256)
def _stack_files(root: Path, manifests: Path, norecursedirs: tuple[str, ...]) -> frozenset[Path]:
    """Return the files that declare stacks which pytest reads for a manifest or a folder."""
    from pytest_mlms.core.errors import MlmsError
    from pytest_mlms.provide.stacks.declared import stack_files
    from pytest_mlms.provide.stacks.schema import load_stacks

    found = set()
    for file in stack_files(root, [manifests], norecursedirs):
        with contextlib.suppress(MlmsError):  # it would have failed the run
            if load_stacks(file):
                found.add(file.resolve())
    return frozenset(found)


def _words(option: Option, value: Any) -> Iterator[str]:
    """Yield an option with its value; nothing where it was not typed."""
    if value is None:
        return
    if option.is_switch:
        yield option.flag
        return
    values = value if option.repeatable else [value]
    for one in values:
        yield f"{option.flag}={share_text(one) if option.read is read_share else _text(one)}"


def _stack_of_drafts(config: pytest.Config) -> Iterator[str]:
    """Yield the stack that runs several models without a manifest where none is named."""
    models = config.getoption("mlms_model", None) or ()
    if len(models) > 1 and not config.getoption("mlms_stack", None):
        yield "--mlms-stack=here"


def _text(value: Any) -> str:
    if isinstance(value, tuple) and any(isinstance(each, int) for each in value):  # of rounds
        return "-".join(str(each) for each in value if each is not None)
    if isinstance(value, tuple):  # levels of a trace
        return ",".join(value) or "none"
    return str(value)


def _node(nodeid: str, path: Path, config: pytest.Config) -> str:
    """Return the item's file and the rest of its node id."""
    file = os.path.relpath(path, config.invocation_params.dir)
    _, separator, name = nodeid.partition("::")
    return f"{file}{separator}{name}"
