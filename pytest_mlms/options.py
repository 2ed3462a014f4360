"""The options, each on the command line and as an ini key, and how they are read.

Every pytest run on a machine that has the plugin imports this, so it imports nothing heavy.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.settings import DOWNLOAD_SIZE, DOWNLOAD_TIME, LEVELS, UNPACK_LIMIT

LEAST_SOAK = 3.0
"""Seconds; in less there are too few blocks of calls to judge."""
_OVERRIDE = re.compile("^(-o|--override-ini=)")
_MOST_SOAK = 7 * 24 * 3600.0
_LEVEL_NAMES = ", ".join(LEVELS)
_FEWEST_ROUNDS = 3  # of two, Student's interval says next to nothing


class Option(NamedTuple):
    """An option: ``--mlms-NAME`` on the command line and ``mlms_NAME`` in an ini file.

    Without a ``metavar`` it is a switch. ``read`` turns text into a value and raises
    ArgumentTypeError; an option of paths has Path. A ``repeatable`` option has a tuple of values.
    ``bare`` is the text that the option stands for when no value follows it. The files and folders
    that ``is_sent`` names are copied to the hosts of remote workers, and no others.

    ``needs`` and ``not_with`` are attributes of Config: where none of the first is set, or one of
    the second, the option would do nothing, and is refused on the command line.
    """

    name: str
    help: str
    metavar: str | None = None
    read: Callable[[str], Any] = str
    default: Any = None
    repeatable: bool = False
    bare: str | None = None
    is_sent: bool = False
    needs: tuple[str, ...] = ()
    not_with: tuple[str, ...] = ()

    @property
    def flag(self) -> str:
        """The option on the command line."""
        return _flag(self.key)

    @property
    def key(self) -> str:
        """The option in an ini file, and pytest's name for its value."""
        return f"mlms_{self.name}"

    @property
    def is_switch(self) -> bool:
        """True if the option takes no value."""
        return self.metavar is None


def read_share(text: str) -> float:
    """Return a share as it is typed: 3 %, 3%, 0.03 or 250 %.

    Raises ArgumentTypeError, which says what to write.
    """
    from pytest_mlms.core.units import parse_share

    try:
        return parse_share(text if "%" in text else float(text))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a share; write it as in '3 %' or 0.03"
        ) from None


def share_text(share: float) -> str:
    """Return a share as ``read_share`` takes it."""
    return f"{100 * share:.12g}%"


def _count(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number, 1 or more")
    return value


def _outputs(text: str) -> int:
    """Return a number of inputs; 0 stands for all."""
    try:
        return 0 if text == "all" else _count(text)
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentTypeError(f"{error}, nor all") from None


def _seconds(least: float) -> Callable[[str], float]:
    """Return a reader of a number that is at least ``least``."""

    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if math.isfinite(value) and value >= least:
            return value
        raise argparse.ArgumentTypeError(f"{text!r} is not a number, {least:g} or more")

    return read


def _time(text: str) -> float:
    from pytest_mlms.core.units import parse_quantity

    try:
        seconds = parse_quantity(text, "s")
    except ValueError:
        seconds = math.nan
    if LEAST_SOAK <= seconds <= _MOST_SOAK:
        return seconds
    raise argparse.ArgumentTypeError(
        f"{text!r} is not a time of a soak; write seconds or minutes, as in 30s or 10min, from 3 s "
        "to a week (10080 min)"
    )


def _size(text: str) -> float:
    from pytest_mlms.core.units import parse_quantity

    try:
        return parse_quantity(text, "B")
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _gate(text: str) -> str:
    """Return a quantity and its tolerance, as in latency_p90=5%."""
    from pytest_mlms.core.quantities import upgrade_rules

    name, equals, share = text.partition("=")
    known = list(dict.fromkeys([*upgrade_rules(), *upgrade_rules(None)]))
    if name not in known or not equals:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a quantity of upgrades with its tolerance; write one as in "
            f"latency_p90=5%, with one of {', '.join(known)}"
        )
    return f"{name}={share_text(read_share(share))}"


def _rounds(text: str) -> tuple[int | None, int]:
    """Return the least and the most rounds: 24, or 11-24."""
    least, dash, most = text.rpartition("-")
    try:
        span = int(least) if dash else None, int(most)
    except ValueError:
        span = 0, 0
    if not _FEWEST_ROUNDS <= (span[0] or _FEWEST_ROUNDS) <= span[1]:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no number of rounds, nor a least and a most one, of {_FEWEST_ROUNDS} or "
            f"more; write 24, or 11-24"
        )
    return span


def _portal_url(text: str) -> str:
    from pytest_mlms.core.portal_address import read_url

    try:
        return read_url(text)
    except MlmsError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _one_of(*names: str) -> Callable[[str], str]:
    """Return a reader of one of a few names."""

    def read(text: str) -> str:
        if text not in names:
            raise argparse.ArgumentTypeError(f"{text!r} is not one of {', '.join(names)}")
        return text

    return read


def _levels(text: str) -> tuple[str, ...]:
    """Return the named levels from the outermost to the innermost; "none" names none."""
    names = [name.strip() for name in text.split(",")]
    named = {name for name in names if name not in ("", "none")}
    for name in sorted(named):
        if name not in LEVELS:
            raise argparse.ArgumentTypeError(
                f"unknown trace level {name!r}; choose from {_LEVEL_NAMES}, or none"
            )
    return tuple(level for level in LEVELS if level in named)


def _option(text: str, **more: Any) -> Any:
    """Return a field of Options: its text of help, and other fields of its Option."""
    return field(metadata={"help": text, **more})


@dataclass(frozen=True, eq=False, init=False, kw_only=True, repr=False)
class Options:
    """The value of each option; paths are absolute, times in seconds.

    A field is declared by what its Option has: it is here alone that an option is added.
    """

    manifests: tuple[Path, ...] = _option(
        "folder of manifests, or one file; may be repeated",
        metavar="DIR",
        read=Path,
        repeatable=True,
        is_sent=True,
    )
    model: tuple[str, ...] = _option(
        "a model's file, measured without a manifest; several are one network in several formats",
        metavar="FILE",
        repeatable=True,
    )
    stack: tuple[str, ...] = _option(
        "stack, requirement (onnxruntime==1.30.0), interpreter, 'all'; may be repeated",
        metavar="STACK",
        repeatable=True,
    )
    results: Path = _option(
        "folder that each run adds a folder of results to (default: mlms-results)",
        metavar="DIR",
        read=Path,
        default="mlms-results",
    )
    keep: int = _option(
        "last runs to keep in that folder; older ones without a name are removed (default: 50)",
        metavar="N",
        read=_count,
        default=50,
    )
    history: str | None = _option(
        "add the run to a history, a file or a database's URL "
        "(default: $MLMS_HISTORY, or history.sqlite beside the results)",
        metavar="FILE|URL",
        bare="",
    )
    benchmark_json: Path | None = _option(
        "also write the performance items as a pytest-benchmark document",
        metavar="FILE",
        read=Path,
        not_with=("upgrade",),
    )
    bencher_json: Path | None = _option(
        "also write all values with their intervals in Bencher Metric Format",
        metavar="FILE",
        read=Path,
    )
    metrics: Path | None = _option(
        "also write all values as OpenMetrics text, such as GitLab's metrics report",
        metavar="FILE",
        read=Path,
    )
    report: Path | None = _option(
        "also write the run as one HTML file: verdicts, numbers and charts",
        metavar="FILE",
        read=Path,
    )
    upgrade_report: Path | None = _option(
        "also write each REGRESSED upgrade as Markdown for an issue tracker "
        "(default: upgrade-report.md)",
        metavar="FILE",
        read=Path,
        bare="upgrade-report.md",
        needs=("upgrade",),
    )
    push: str | None = _option(
        "portal that the run is pushed to at its end; MLMS_PUSH_TOKEN has the token",
        metavar="URL",
        read=_portal_url,
    )
    push_token_file: Path | None = _option(
        "file with the token for --mlms-push, in place of MLMS_PUSH_TOKEN",
        metavar="FILE",
        read=Path,
        needs=("push",),
    )
    env_passthrough: tuple[str, ...] = _option(
        "environment variables that agents get beside those of docs/stacks.md; may be repeated",
        metavar="PATTERN",
        repeatable=True,
    )
    endpoint: tuple[str, ...] = _option(
        "host that the endpoint of a stack may be on, other than this one; may be repeated",
        metavar="HOST",
        repeatable=True,
    )
    predictors: tuple[Path, ...] = _option(
        "folder of more predictors, one file a framework; may be repeated",
        metavar="DIR",
        read=Path,
        repeatable=True,
        is_sent=True,
    )
    cache: Path | None = _option(
        "folder for fetched artifacts (default: the user's cache folder)",
        metavar="DIR",
        read=Path,
    )
    download_size: float = _option(
        "largest file to download (default: 20 GiB)",
        metavar="SIZE",
        read=_size,
        default=DOWNLOAD_SIZE,
    )
    download_time: float = _option(
        "seconds for the download of a file, at most (default: 3600)",
        metavar="SECONDS",
        read=_seconds(1),
        default=DOWNLOAD_TIME,
    )
    unpack_limit: float = _option(
        "largest content of an archive that is unpacked (default: 64 GiB)",
        metavar="SIZE",
        read=_size,
        default=UNPACK_LIMIT,
    )
    processes: int = _option(
        "fresh processes per performance item: the replicates (default: 3)",
        metavar="N",
        read=_count,
        default=3,
    )
    duration: float = _option(
        "timed seconds in each process, at least (default: 1)",
        metavar="SECONDS",
        read=_seconds(0),
        default=1.0,
    )
    soak: float | None = _option(
        "add test_soak: a process that is called for so long, as in 10min",
        metavar="TIME",
        read=_time,
    )
    full: bool = _option(
        "measure performance in full, even where every limit is decided early",
        default=False,
    )
    budget: float = _option(
        "seconds per performance item, at most (default: 60)",
        metavar="SECONDS",
        read=_seconds(0),
        default=60.0,
    )
    outputs: int | None = _option(
        "inputs on which upgrades compare outputs: all, or N (default: as the budget allows)",
        metavar="N",
        read=_outputs,
        needs=("upgrade",),
    )
    seed: int | None = _option(
        "draw timed inputs and orders by this, as in a line's duel_seed or inputs_seed (random)",
        metavar="NUMBER",
        read=_count,
    )
    loadgen: str | None = _option(
        "let MLPerf's LoadGen in the stack measure performance; =valid: as long as a result takes",
        metavar="LENGTH",
        read=_one_of("short", "valid"),
        bare="short",
        not_with=("upgrade",),
    )
    against: tuple[str, ...] = _option(
        "gate an upgrade from this stack to that of --mlms-stack",
        metavar="STACK",
        repeatable=True,
    )
    aa: bool = _option(
        "an upgrade from each stack to itself: shows the noise floor of every item",
        default=False,
    )
    tolerance: float | None = _option(
        "how much slower an upgrade may be (default: the manifest's, or 3 %)",
        metavar="SHARE",
        read=read_share,
        needs=("upgrade", "sides"),
    )
    gate: tuple[str, ...] = _option(
        "quantity that an upgrade must be shown to keep within a tolerance; may be repeated",
        metavar="QUANTITY=SHARE",
        read=_gate,
        repeatable=True,
        needs=("upgrade", "sides"),
    )
    rounds: tuple[int | None, int] | None = _option(
        "rounds of an upgrade: 24 for at most 24, 11-24 for 11 to 24 (default: 6-12)",
        metavar="ROUNDS",
        read=_rounds,
        needs=("upgrade",),
    )
    clock: str | None = _option(
        "adj, cpu, wall or device (default: the best one there is)",
        metavar="CLOCK",
        read=_one_of("adj", "cpu", "wall", "device"),
        needs=("upgrade",),
    )
    timeout: float = _option(
        "longest wait for a reply of an agent (default: 300)",
        metavar="SECONDS",
        read=_seconds(0.01),
        default=300.0,
    )
    allow_code: bool = _option(
        "run code that a model brings along, such as the module of a state dict",
        default=False,
    )
    trace: tuple[str, ...] = _option(
        f"trace each case at these levels, by commas: {_LEVEL_NAMES}; or none",
        metavar="LEVELS",
        read=_levels,
        default=(),
        not_with=("upgrade",),
    )
    trace_functions: tuple[str, ...] = _option(
        "native calls to trace at level library",
        metavar="LIBRARY:FUNCTION",
        repeatable=True,
    )
    trace_on_fail: bool = _option(
        "trace a performance item whose limits are broken",
        default=False,
        not_with=("upgrade",),
    )
    resume: str | None = _option(
        "go on with a run that was stopped: its name, without one the last",
        metavar="RUN",
        bare="latest",
    )
    worker_timeout: float = _option(
        "silence that makes a worker count as lost (default: 60)",
        metavar="SECONDS",
        read=_seconds(5),
        default=60.0,
    )
    fleet: bool = _option(
        "show what each host of the run has, and run nothing",
        default=False,
    )
    strict: bool = _option(
        "fail, instead of skip or warn, on what is missing or undecided",
        default=False,
    )


OPTIONS = [Option(entry.name, **entry.metadata) for entry in fields(Options)]
"""Every option, in the order of the help."""


def add_options(parser: pytest.Parser) -> None:
    """Declare each option to pytest, on the command line and as an ini key."""
    group = parser.getgroup("mlms", "evaluation of machine-learning models")
    for option in OPTIONS:
        text = option.help.replace("%", "%%")  # of argparse, which formats it
        group.addoption(option.flag, dest=option.key, help=text, **_argument(option))
        parser.addini(option.key, option.help, type=_ini_type(option))


def _argument(option: Option) -> dict[str, Any]:
    """Return the arguments of argparse for an option.

    Its default is None, so that a value from the command line can be told from one of an ini file.
    """
    if option.is_switch:
        return {"action": "store_true", "default": None}
    argument: dict[str, Any] = {"metavar": option.metavar, "default": None}
    argument["action"] = "append" if option.repeatable else "store"
    # xdist sends options to its workers, and can't send a path.
    argument["type"] = str if option.read is Path else option.read
    if option.bare is not None:
        argument["nargs"] = "?"
        argument["const"] = option.bare
    return argument


def _ini_type(option: Option) -> Literal["bool", "linelist"] | None:
    if option.is_switch:
        return "bool"
    if option.repeatable:
        return "linelist"
    return None


def read_option(config: pytest.Config, option: Option) -> Any:
    """Return an option's value: from the command line, else from the ini file, else its default.

    Paths are absolute. Raises pytest.UsageError.
    """
    folder = config.invocation_params.dir
    value = flag_value(config, option.key)
    if value is None:
        value = _read_ini(config, option.key)
        if value is not None:
            folder = config.rootpath
    if value is None:
        value = option.default
    if option.read is Path:
        return _absolute(option, value, folder)
    if option.repeatable:
        return tuple(value or ())
    if not isinstance(value, str):
        return value
    try:
        return option.read(value)
    except argparse.ArgumentTypeError as error:
        raise pytest.UsageError(f"{source_of(config, option.key)}: {error}") from None


def flag_value(config: pytest.Config, key: str) -> Any:
    """Return the value of an option's flag; None without one, and where a later -o overrides it."""
    flag = _flag(key)
    from_environment = shlex.split(os.environ.get("PYTEST_ADDOPTS", ""))
    flag_at = override_at = 0  # of addopts in the ini file, the environment, the command line
    for place, words in enumerate((from_environment, config.invocation_params.args), start=1):
        texts = [os.fspath(word) for word in words]
        if any(text.partition("=")[0] == flag for text in texts):
            flag_at = place
        if any(_OVERRIDE.sub("", text).startswith(f"{key}=") for text in texts):
            override_at = place
    return config.getoption(key) if flag_at >= override_at else None


def is_set(config: pytest.Config, key: str) -> bool:
    """Return whether an option is set, on the command line or in the ini file."""
    return flag_value(config, key) is not None or _read_ini(config, key) is not None


def source_of(config: pytest.Config, key: str) -> str:
    """Return the place where an option was set, as errors name it."""
    return f"{key} in {config.inipath}" if flag_value(config, key) is None else _flag(key)


def _flag(key: str) -> str:
    """Return the option on the command line whose ini key this is."""
    return "--" + key.replace("_", "-")


def _read_ini(config: pytest.Config, key: str) -> Any:
    try:
        return config.getini(key) or None
    except (ValueError, pytest.UsageError) as error:  # of a bool: pytest 8, and from 9 on
        source = source_of(config, key)
        raise pytest.UsageError(f"{source}: {error}; write true or false") from None


def _absolute(option: Option, value: Any, folder: Path) -> Any:
    if option.repeatable:
        return tuple(below(folder, path) for path in value or ())
    if value is None:
        return None
    return below(folder, value)


def below(folder: Path, path: str) -> Path:
    """Return an absolute path; shells leave the ~ of --option=~/path as it is."""
    expanded = os.path.expanduser(path)
    return Path(os.path.normpath(folder / expanded))
