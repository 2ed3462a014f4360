"""The command line and the ini file, read once into a frozen Config; every option is also an ini key.

Kept light: this is imported by every pytest run on a machine that has the plugin.
"""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest

__all__ = ["Config", "add_options"]


def _number(kind: type[int] | type[float], least: float) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        try:
            value = kind(text)
        except ValueError:
            value = kind(-1)
        if not (math.isfinite(value) and value >= least):
            noun = "a whole number" if kind is int else "a number"
            raise argparse.ArgumentTypeError(f"{text!r} is not {noun}, {least:g} or more")
        return value

    return read


class _Option(NamedTuple):
    name: str
    metavar: str | None
    help: str
    read: Callable[[str], Any] = Path
    many: bool = False


_OPTIONS = [
    _Option("manifests", "DIR", "folder of manifests, or one file; may be repeated", many=True),
    _Option("results", "DIR", "folder that each run adds a folder of results to (default: mlms-results)"),
    _Option("benchmark_json", "FILE", "also write the performance items as a pytest-benchmark document"),
    _Option("predictors", "DIR", "folder of more predictors, one file a framework; may be repeated", many=True),
    _Option("cache", "DIR", "folder for fetched artifacts (default: the user's cache folder)"),
    _Option("processes", "N", "fresh processes per performance item: the replicates (default: 3)", _number(int, 1)),
    _Option("duration", "SECONDS", "timed seconds in each process, at least (default: 1)", _number(float, 0)),
    _Option("budget", "SECONDS", "seconds per performance item, at most (default: 60)", _number(float, 0)),
    _Option("timeout", "SECONDS", "longest wait for a reply of an agent (default: 300)", _number(float, 0.01)),
    _Option("strict", None, "fail, instead of skip or warn, on what is lacking or undecided", bool),
]


@dataclass(frozen=True)
class Config:
    """Every option of the plugin; paths are absolute, times in seconds."""

    manifests: tuple[Path, ...]
    results: Path
    benchmark_json: Path | None
    predictors: tuple[Path, ...]
    cache: Path | None
    processes: int
    duration: float
    budget: float
    timeout: float
    strict: bool

    @classmethod
    def from_pytest(cls, config: pytest.Config) -> Config:
        """Read the options; raises pytest.UsageError, which names the option and what it must be."""
        defaults = {"results": config.invocation_params.dir / "mlms-results", "processes": 3}
        defaults.update(duration=1.0, budget=60.0, timeout=300.0, strict=False)
        read: dict[str, Any] = {option.name: _read(config, option) for option in _OPTIONS}
        read = {name: defaults.get(name) if value is None else value for name, value in read.items()}
        for name in ("manifests", "predictors"):
            read[name] = tuple(read[name] or ())
            for path in read[name]:
                if not path.exists():
                    raise pytest.UsageError(f"{_flag(name)}: there is no {path}; name a folder that exists")
        if read["results"].exists() and not read["results"].is_dir():
            raise pytest.UsageError(f"{_flag('results')}: {read['results']} is a file; name a folder")
        return cls(**read)


def add_options(parser: pytest.Parser) -> None:
    """Declare each option, on the command line and as an ini key."""
    group = parser.getgroup("mlms", "evaluation of machine-learning models")
    for option in _OPTIONS:
        key = f"mlms_{option.name}"
        if option.metavar is None:
            group.addoption(_flag(option.name), dest=key, action="store_true", default=None, help=option.help)
            parser.addini(key, option.help, type="bool")
        else:
            action = "append" if option.many else "store"
            kind = str if option.read is Path else option.read  # xdist sends options to its workers, as plain values
            form: dict[str, Any] = {"action": action, "type": kind, "metavar": option.metavar, "help": option.help}
            group.addoption(_flag(option.name), dest=key, default=None, **form)
            many: Literal["linelist"] | None = "linelist" if option.many else None
            parser.addini(key, option.help, type=many)


def _flag(name: str) -> str:
    return "--mlms-" + name.replace("_", "-")


def _read(config: pytest.Config, option: _Option) -> Any:
    """Return the option from the command line, else from the ini file, else None; paths made absolute."""
    value, base = config.getoption(f"mlms_{option.name}"), config.invocation_params.dir
    if value is None:
        value, base = config.getini(f"mlms_{option.name}") or None, config.rootpath
    if option.read is Path and value is not None:
        paths = [Path(os.path.normpath(base / item)) for item in (value if option.many else [value])]
        return paths if option.many else paths[0]
    try:
        return option.read(value) if isinstance(value, str) else value
    except argparse.ArgumentTypeError as error:
        raise pytest.UsageError(f"mlms_{option.name} in {config.inipath}: {error}") from None
