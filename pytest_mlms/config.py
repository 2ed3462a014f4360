"""The command line and the ini file, read once into a frozen Config; every option is also an ini
key.

Kept light: this is imported by every pytest run on a machine that has the plugin.
"""

from __future__ import annotations

import argparse
import math
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest

from pytest_mlms.trace import LEVELS
from pytest_mlms.units import parse_quantity

__all__ = ["MANIFEST_SUFFIXES", "Config", "add_options", "read_share"]

MANIFEST_SUFFIXES = (".yaml", ".yml")


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


def read_share(text: str) -> float:
    """Return a share as it is typed, 3 %, 3% or 0.03.

    Raises ArgumentTypeError, which says what to write.
    """
    try:
        return parse_quantity(text if "%" in text else float(text), "fraction")
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a share; write it as in '3 %' or 0.03"
        ) from None


def _one_of(*words: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in words:
            raise argparse.ArgumentTypeError(f"{text!r} is not one of {', '.join(words)}")
        return text

    return read


def _levels(text: str) -> tuple[str, ...]:
    named = [name.strip() for name in text.split(",") if name.strip() and name.strip() != "none"]
    for name in named:
        if name not in LEVELS:
            raise argparse.ArgumentTypeError(
                f"{name!r} is no level; write some of {', '.join(LEVELS)}, or none"
            )
    return tuple(level for level in LEVELS if level in named)


_LABEL = re.compile(r"[A-Za-z][\w.-]*=[\w.+-]+")


class _Option(NamedTuple):
    name: str
    metavar: str | None
    help: str
    read: Callable[[str], Any] = Path
    many: bool = False
    bare: str | None = None


_CLOCKS = ("adj", "cpu", "wall", "device")

_OPTIONS = [
    _Option("manifests", "DIR", "folder of manifests, or one file; may be repeated", many=True),
    _Option(
        "stack",
        "STACK",
        "stack, requirement (onnxruntime==1.30.0), interpreter, 'all'; may be repeated",
        str,
        True,
    ),
    _Option(
        "results", "DIR", "folder that each run adds a folder of results to (default: mlms-results)"
    ),
    _Option(
        "benchmark_json", "FILE", "also write the performance items as a pytest-benchmark document"
    ),
    _Option(
        "predictors",
        "DIR",
        "folder of more predictors, one file a framework; may be repeated",
        many=True,
    ),
    _Option("cache", "DIR", "folder for fetched artifacts (default: the user's cache folder)"),
    _Option(
        "processes",
        "N",
        "fresh processes per performance item: the replicates (default: 3)",
        _number(int, 1),
    ),
    _Option(
        "duration",
        "SECONDS",
        "timed seconds in each process, at least (default: 1)",
        _number(float, 0),
    ),
    _Option(
        "budget",
        "SECONDS",
        "seconds per performance item, at most (default: 60)",
        _number(float, 0),
    ),
    _Option(
        "against",
        "STACK",
        "gate an upgrade from this stack to that of --mlms-stack",
        str,
        many=True,
    ),
    _Option(
        "aa",
        None,
        "an upgrade from each stack to itself: shows the noise floor of every item",
        bool,
    ),
    _Option(
        "tolerance",
        "SHARE",
        "how much slower an upgrade may be (default: the manifest's, or 3 %%)",
        read_share,
    ),
    _Option(
        "clock",
        "CLOCK",
        "adj, cpu, wall or device (default: the best one there is)",
        _one_of(*_CLOCKS),
    ),
    _Option(
        "timeout",
        "SECONDS",
        "longest wait for a reply of an agent (default: 300)",
        _number(float, 0.01),
    ),
    _Option(
        "allow_code",
        None,
        "run code that a model brings along, such as the module of a state dict",
        bool,
    ),
    _Option(
        "trace",
        "LEVELS",
        f"trace each case at these levels, by commas: {', '.join(LEVELS)}; or none",
        _levels,
    ),
    _Option(
        "trace_functions",
        "LIBRARY:FUNCTION",
        "native calls to trace at level library",
        str,
        many=True,
    ),
    _Option("trace_on_fail", None, "trace a performance item whose limits are broken", bool),
    _Option(
        "resume",
        "RUN",
        "go on with a run that was stopped: its name, without one the last",
        str,
        bare="latest",
    ),
    _Option(
        "worker_timeout",
        "SECONDS",
        "silence that makes a worker count as lost (default: 60)",
        _number(float, 5),
    ),
    _Option("fleet", None, "show what each host of the run has, and run nothing", bool),
    _Option("strict", None, "fail, instead of skip or warn, on what is lacking or undecided", bool),
]


@dataclass(frozen=True)
class Config:
    """Every option of the plugin; paths are absolute, times in seconds."""

    root: Path
    manifests: tuple[Path, ...]
    stack: tuple[str, ...]
    results: Path
    benchmark_json: Path | None
    predictors: tuple[Path, ...]
    cache: Path | None
    processes: int
    duration: float
    budget: float
    timeout: float
    allow_code: bool
    trace: tuple[str, ...]
    trace_functions: tuple[str, ...]
    trace_on_fail: bool
    resume: str | None
    worker_timeout: float
    fleet: bool
    strict: bool
    against: tuple[str, ...]
    aa: bool
    tolerance: float | None
    clock: str | None

    @property
    def upgrade(self) -> bool:
        """Whether cases become upgrade items, in place of the others."""
        return self.aa or (bool(self.against) and not self.sides)

    @property
    def sides(self) -> tuple[str, ...]:
        """The labels of the hosts that are the sides, the candidate's first.

        None where the sides are stacks.
        """
        words = (*self.stack, *self.against)
        return words if self.against and all(map(_LABEL.fullmatch, words)) else ()

    @classmethod
    def from_pytest(cls, config: pytest.Config) -> Config:
        """Read the options; raises pytest.UsageError, which names the option and what it must be.

        A remote worker has them from its controller, whose paths would mean nothing there.
        """
        packed = getattr(config, "workerinput", {}).get("mlms_options")
        if packed:
            return cls._unpack(packed, config.rootpath)
        defaults = {"results": config.invocation_params.dir / "mlms-results", "processes": 3}
        defaults.update(
            duration=1.0, budget=60.0, timeout=300.0, allow_code=False, strict=False, aa=False
        )
        defaults.update(trace=(), trace_on_fail=False)
        defaults.update(worker_timeout=60.0, fleet=False)
        read: dict[str, Any] = {option.name: _read(config, option) for option in _OPTIONS}
        read = {
            name: defaults.get(name) if value is None else value for name, value in read.items()
        }
        for name in ("manifests", "predictors", "stack", "against", "trace_functions"):
            read[name] = tuple(read[name] or ())
        for name in ("manifests", "predictors"):
            for path in read[name]:
                if not path.exists():
                    raise pytest.UsageError(
                        f"{_said(config, name)}: there is no {path}; name a folder that exists"
                    )
        _check_manifests(_said(config, "manifests"), read["manifests"])
        _check_sides(read["stack"], read["against"])
        _check_folder(_said(config, "results"), read["results"])
        _check_functions(config, read["trace"])
        made = cls(root=config.rootpath, **read)
        if made.upgrade and config.getoption("mlms_trace"):
            raise pytest.UsageError(
                "--mlms-trace: upgrades are not traced; run it without --mlms-against and --mlms-aa"
            )
        return made

    def pack(self, place: Callable[[Path], str]) -> dict[str, Any]:
        """Return the options as plain values.

        ``place`` says what a path is on another host, below its rootdir.
        """

        def plain(value: Any) -> Any:
            if isinstance(value, Path):
                return {"path": place(value)}
            return {"paths": [place(path) for path in value]} if _are_paths(value) else value

        return {field.name: plain(getattr(self, field.name)) for field in fields(self)}

    @classmethod
    def _unpack(cls, packed: dict[str, Any], root: Path) -> Config:
        def full(value: Any) -> Any:
            if isinstance(value, dict):
                return (
                    root / value["path"]
                    if "path" in value
                    else tuple(root / path for path in value["paths"])
                )
            return value

        return cls(**{name: full(value) for name, value in packed.items()})


def _check_sides(stack: tuple[str, ...], against: tuple[str, ...]) -> None:
    labels = [word for word in (*stack, *against) if _LABEL.fullmatch(word)]
    if labels and (len(stack), len(against), len(labels)) != (1, 1, 2):
        raise pytest.UsageError(
            f"{labels[0]} is a label of hosts: name one with --mlms-stack and one with --mlms-against and nothing else "
            f"(a version has two signs: {labels[0].replace('=', '==')})"
        )


def _are_paths(value: Any) -> bool:
    return isinstance(value, tuple) and all(isinstance(item, Path) for item in value)


def _check_manifests(said: str, paths: tuple[Path, ...]) -> None:
    """Refuse what names no manifest, so that a gate that runs nothing never looks like one that
    passes.
    """
    for path in paths:
        names = (
            [path.name]
            if path.is_file()
            else (name for _, _, names in os.walk(path) for name in names)
        )
        if not any(name.endswith(MANIFEST_SUFFIXES) for name in names):
            what = "is no .yaml file" if path.is_file() else "has no .yaml file"
            raise pytest.UsageError(f"{said}: {path} {what}; name a manifest, or a folder of them")


def _check_functions(config: pytest.Config, levels: tuple[str, ...]) -> None:
    """Refuse functions on a command line whose levels would not show them.

    An ini file may have them.
    """
    if config.getoption("mlms_trace_functions") and "library" not in levels:
        wanted = ",".join((*levels, "library"))
        raise pytest.UsageError(
            f"--mlms-trace-functions: they are of level library; write --mlms-trace={wanted}, too"
        )


def _check_folder(said: str, path: Path) -> None:
    """Refuse a folder that can't be one, before anything is measured for it."""
    nearest = next(folder for folder in (path, *path.parents) if folder.exists())
    if not nearest.is_dir():
        raise pytest.UsageError(f"{said}: {nearest} is a file; name a folder")


def add_options(parser: pytest.Parser) -> None:
    """Declare each option, on the command line and as an ini key."""
    group = parser.getgroup("mlms", "evaluation of machine-learning models")
    for option in _OPTIONS:
        key = f"mlms_{option.name}"
        if option.metavar is None:
            group.addoption(
                _flag(option.name), dest=key, action="store_true", default=None, help=option.help
            )
            parser.addini(key, option.help, type="bool")
        else:
            action = "append" if option.many else "store"
            kind = (
                str if option.read is Path else option.read
            )  # xdist sends options to its workers, as plain values
            form: dict[str, Any] = {
                "action": action,
                "type": kind,
                "metavar": option.metavar,
                "help": option.help,
            }
            form |= {"nargs": "?", "const": option.bare} if option.bare else {}
            group.addoption(_flag(option.name), dest=key, default=None, **form)
            many: Literal["linelist"] | None = "linelist" if option.many else None
            parser.addini(key, option.help, type=many)


def _flag(name: str) -> str:
    return "--mlms-" + name.replace("_", "-")


def _said(config: pytest.Config, name: str) -> str:
    """Return where an option was set, as errors call it."""
    key = f"mlms_{name}"
    return f"{key} in {config.inipath}" if config.getoption(key) is None else _flag(name)


def _read(config: pytest.Config, option: _Option) -> Any:
    """Return the option from the command line, else from the ini file, else None.

    Paths made absolute.
    """
    value, base = config.getoption(f"mlms_{option.name}"), config.invocation_params.dir
    if value is None:
        value, base = _ini(config, option), config.rootpath
    if option.read is Path and value is not None:
        paths = [
            Path(os.path.normpath(base / item)) for item in (value if option.many else [value])
        ]
        return paths if option.many else paths[0]
    try:
        return option.read(value) if isinstance(value, str) else value
    except argparse.ArgumentTypeError as error:
        raise pytest.UsageError(f"{_said(config, option.name)}: {error}") from None


def _ini(config: pytest.Config, option: _Option) -> Any:
    try:
        return config.getini(f"mlms_{option.name}") or None
    except (ValueError, pytest.UsageError) as error:  # of a bool: pytest 8, and from 9 on
        raise pytest.UsageError(
            f"{_said(config, option.name)}: {error}; write true or false"
        ) from None
