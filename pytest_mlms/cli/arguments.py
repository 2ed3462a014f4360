"""Arguments of several subcommands of ``mlms``, settings by them, and printing to the terminal."""

from __future__ import annotations

import argparse
import contextlib
import math
import shutil
import sys
import threading
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.files import output_problem
from pytest_mlms.core.text import visible
from pytest_mlms.provide.artifacts.fetch import default_cache
from pytest_mlms.provide.stacks.shown_steps import shown_step

if TYPE_CHECKING:
    from pytest_mlms.core.child_session import ChildOptions
    from pytest_mlms.explain.repro.making import Making

DEFAULT_HISTORY = "mlms-results/history.sqlite"
"""The history that a bare --mlms-history writes, where --mlms-results is left as it is."""

_WIDTH = 80  # columns of a log
_SILENT_SECONDS = 2.0  # of a wait
_OF_PROJECT = "of_project"  # the options that pytest's ini file may set, with their defaults


def of_project(parser: argparse.ArgumentParser, name: str, default: Any) -> Any:
    """Return the default of an option, and note that the project's ini file may have another."""
    known = parser.get_default(_OF_PROJECT) or {}
    parser.set_defaults(**{_OF_PROJECT: {**known, name: default}})
    return default


def take_settings(options: argparse.Namespace) -> None:
    """Give the options that nobody typed the values that pytest's ini file has, if it has some.

    Raises MlmsError for a file that can't be read.
    """
    defaults = getattr(options, _OF_PROJECT, {})
    left = [name for name, default in defaults.items() if getattr(options, name) is default]
    if not left:
        return
    from pytest_mlms.project import find_project

    named = [*getattr(options, "paths", ())]
    named += [getattr(options, name) for name in ("manifest", "nodeid") if hasattr(options, name)]
    project = find_project([Path(str(path).partition("::")[0]) for path in named])
    for name in left:
        value = project.value(name)
        if value:
            setattr(options, name, list(value) if isinstance(value, tuple) else value)
        elif name == "history" and defaults[name] == DEFAULT_HISTORY:
            results = project.value("results")
            options.history = str(results / "history.sqlite") if results else DEFAULT_HISTORY


def add_predictors(parser: argparse.ArgumentParser) -> None:
    """Add --mlms-predictors, as ``predictors``."""
    add_folders(parser, "predictors", "folder of more predictors; may be repeated")


def add_folders(parser: argparse.ArgumentParser, name: str, text: str) -> None:
    """Add an option --mlms-NAME that takes a folder, and may be repeated."""
    parser.add_argument(
        f"--mlms-{name}",
        action="append",
        default=of_project(parser, name, []),
        type=Path,
        metavar="DIR",
        dest=name,
        help=text,
    )


def add_cache(parser: argparse.ArgumentParser) -> None:
    """Add --mlms-cache, as ``cache``."""
    parser.add_argument(
        "--mlms-cache",
        default=of_project(parser, "cache", default_cache()),
        type=Path,
        metavar="DIR",
        dest="cache",
        help="folder for fetched artifacts and made stacks",
    )


def add_results(parser: argparse.ArgumentParser, text: str, flag: str = "--mlms-results") -> None:
    """Add the folder of results, as ``results``."""
    parser.add_argument(
        flag,
        default=of_project(parser, "results", Path("mlms-results")),
        type=Path,
        metavar="DIR",
        dest="results",
        help=text,
    )


def add_stacks(parser: argparse.ArgumentParser, text: str, *shorter: str) -> None:
    """Add --mlms-stack and a ``shorter`` flag, as ``stacks``."""
    parser.add_argument(
        *shorter,
        "--mlms-stack",
        action="append",
        default=[],
        metavar="STACK",
        dest="stacks",
        help=text,
    )


def add_more_requirements(parser: argparse.ArgumentParser) -> None:
    """Add --with, as ``more``: the requirements of each stack beside a release."""
    parser.add_argument(
        "--with",
        action="append",
        default=[],
        metavar="REQUIREMENT",
        dest="more",
        help="what each stack has beside the release, such as 'numpy<2'; may be repeated",
    )


def add_expression(parser: argparse.ArgumentParser, text: str) -> None:
    """Add -k, as ``expression``: a selection by words, as pytest's."""
    parser.add_argument("-k", dest="expression", default="", metavar="EXPR", help=text)


def add_tolerance(parser: argparse.ArgumentParser, text: str, default: float | None = None) -> None:
    """Add --tolerance, a share."""
    from pytest_mlms.options import read_share

    parser.add_argument("--tolerance", type=read_share, default=default, metavar="SHARE", help=text)


def add_budget(
    parser: argparse.ArgumentParser, purpose: str, default: float, flag: str = "--budget"
) -> None:
    """Add the seconds that something may take, at most."""
    parser.add_argument(
        flag,
        type=seconds_above_0,
        default=default,
        metavar="SECONDS",
        help=f"seconds {purpose}, at most (default: {default:g})",
    )


def add_allow_code(parser: argparse.ArgumentParser) -> None:
    """Add --mlms-allow-code, as ``allow_code``."""
    parser.add_argument(
        "--mlms-allow-code",
        action="store_true",
        default=of_project(parser, "allow_code", False),
        dest="allow_code",
        help="let the files of models run code",
    )


def add_opening(parser: argparse.ArgumentParser) -> None:
    """Add --mlms-allow-code, --mlms-predictors and --mlms-cache, of commands that open models."""
    add_allow_code(parser)
    add_predictors(parser)
    add_cache(parser)


def add_columns_and_labels(parser: argparse.ArgumentParser) -> None:
    """Add --target, --without and --labels, which say what the data of a draft has."""
    parser.add_argument(
        "--target",
        action="append",
        default=[],
        metavar="COLUMN",
        help="column of a table that has what is right, by its name, or by its number from 1 where "
        "there are no names; may be repeated for several numbers",
    )
    parser.add_argument(
        "--without",
        action="append",
        default=[],
        metavar="COLUMN",
        help="column of a table that the model was not trained on; may be repeated",
    )
    parser.add_argument(
        "--labels",
        type=Path,
        metavar="FILE",
        help="names of the classes, one a line in the order of the model's output",
    )


def add_trust(parser: argparse.ArgumentParser) -> None:
    """Add --trust-run, as ``trusted``."""
    parser.add_argument(
        "--trust-run",
        action="append",
        default=[],
        metavar="RUN",
        dest="trusted",
        help="take programs, addresses and variables of a run's stacks as its results tell them, "
        "which may run any code; may be repeated",
    )


def add_top(parser: argparse.ArgumentParser, text: str) -> None:
    """Add --top, a number of rows."""
    parser.add_argument("--top", type=positive, metavar="N", help=text)


def add_session_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of a command that runs pytest."""
    add_results(parser, "folder that each run adds a folder of results to (default: mlms-results)")
    add_opening(parser)
    parser.add_argument(
        "--mlms-env-passthrough",
        action="append",
        default=of_project(parser, "env_passthrough", []),
        metavar="NAME",
        dest="env_passthrough",
        help="variable that agents get, too; may be repeated",
    )


def child_options(options: argparse.Namespace) -> ChildOptions:
    """Return the options of the sessions that a command runs."""
    from pytest_mlms.core.child_session import ChildOptions

    return ChildOptions(
        results=options.results,
        cache=options.cache,
        predictors=tuple(options.predictors),
        allow_code=options.allow_code,
        env_passthrough=tuple(options.env_passthrough),
    )


def add_making(parser: argparse.ArgumentParser) -> None:
    """Add the options that ``making_of`` reads, and --mlms-results."""
    parser.add_argument(
        "--quantity", metavar="NAME", help="of an upgrade (default: the first that regressed)"
    )
    add_results(parser, "folder of the runs (default: mlms-results)")
    add_opening(parser)
    add_trust(parser)


def making_of(
    options: argparse.Namespace, quantity: str | None, trusted: Collection[str] = ()
) -> Making:
    """Return the settings for a quantity of an upgrade, None for the first that regressed.

    ``trusted`` are runs that the command itself has made.
    """
    from pytest_mlms.explain.repro.making import Making
    from pytest_mlms.measure.agent.registry import find_predictors

    return Making(
        predictors=find_predictors(options.predictors),
        cache=options.cache,
        show=show_step,
        results=options.results,
        trusted=(*trusted, *getattr(options, "trusted", ())),
        quantity=quantity,
        allow_code=options.allow_code,
    )


def positive(text: str) -> int:
    """Return the number that a text says; raises ArgumentTypeError below 1."""
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number, 1 or more")
    return int(text)


def seconds_above_0(text: str) -> float:
    """Return the number that a text says; raises ArgumentTypeError where it isn't above 0."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if math.isfinite(seconds) and seconds > 0:
        return seconds
    raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds above 0")


def check_output(path: Path, option: str) -> None:
    """Raise MlmsError where a file can't be written, before the work that it is for."""
    problem = output_problem(path)
    if problem:
        raise MlmsError(f"{option}: {problem}")


def output_width() -> int:
    """Return the columns of the terminal, or of a log where the output is none."""
    if not sys.stdout.isatty():
        return _WIDTH
    return shutil.get_terminal_size((_WIDTH, 0)).columns


def print_error(text: object) -> None:
    """Print an error or a note of the command to standard error."""
    print(f"mlms: {text}", file=sys.stderr)


def say(line: str) -> None:
    """Print a line on what goes on to standard error."""
    print(visible(line), file=sys.stderr, flush=True)


def show_step(step: str) -> None:
    """Print a step of an installation to standard error; the text is empty at its end."""
    step = shown_step(step)
    if step:
        print(step, file=sys.stderr)


@contextlib.contextmanager
def telling(subject: Callable[[], str]) -> Iterator[None]:
    """Print what is waited for, where that takes long."""
    timer = threading.Timer(_SILENT_SECONDS, lambda: say(f"waiting for {subject()}"))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
