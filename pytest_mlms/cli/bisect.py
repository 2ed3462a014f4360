"""``mlms bisect``: the release, or the package, that made an upgrade worse."""

from __future__ import annotations

import argparse
import datetime
import shlex
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_mlms.cli.arguments import (
    add_budget,
    add_folders,
    add_more_requirements,
    add_session_arguments,
    add_tolerance,
    child_options,
    positive,
    print_error,
    show_step,
)
from pytest_mlms.options import OPTIONS

if TYPE_CHECKING:
    from pytest_mlms.core.records import Stack
    from pytest_mlms.explain.bisect.bisection import Bisection
    from pytest_mlms.explain.bisect.question import End, Point
    from pytest_mlms.explain.bisect.record import Probe, Record
    from pytest_mlms.provide.artifacts.package_index import PipSettings

_STATUS = {"found": 0, "same": 1, "range": 2, "gradual": 2}
_RECORD = Path("bisect.json")
_LOCKS = (".lock", ".toml")
_BUDGET = 60.0  # seconds of an upgrade, as pytest's --mlms-budget
_OF_UPGRADES = ("outputs", "clock", "seed")
"""Options of pytest that each judgement has, too."""
_DURATION = 1.0  # seconds of a process, as pytest's --mlms-duration


def add_bisect(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "bisect",
        help="find the release, or the package, that made an upgrade worse",
        description="Exit status: 0 found, 1 the ends don't differ, 2 only a range, 3 usage.",
    )
    add_question(parser)
    parser.add_argument("--resume", action="store_true", help="go on with the file of --file")
    parser.add_argument(
        "--file",
        type=Path,
        default=_RECORD,
        metavar="FILE",
        help=f"what was judged so far (default: {_RECORD})",
    )
    parser.set_defaults(run=bisect)


def add_question(parser: argparse.ArgumentParser) -> None:
    """Add the ends and the quantity, the search, and the options of sessions of pytest."""
    parser.add_argument("nodeid", metavar="NODEID", help="FILE::test_upgrade[…-DEVICE-bN]")
    for name, which in (("good", "last good"), ("bad", "first bad")):
        text = f"the {which} release known, as in onnxruntime==1.20.1; or a lock file"
        parser.add_argument(f"--{name}", required=True, metavar="RELEASE|LOCK", help=text)
    parser.add_argument(
        "--quantity",
        metavar="NAME",
        help="latency, agreement, crash, top1, peak_memory or another one that upgrades compare "
        "(default: the first that the ends differ in)",
    )
    add_tolerance(parser, "how much worse the quantity may be (default: the manifest's)")
    add_more_requirements(parser)
    parser.add_argument(
        "--stack",
        metavar="NAME",
        help="stack whose Python, environment, options and installer each release has",
    )
    parser.add_argument("--pre", action="store_true", help="pre-releases, too")
    parser.add_argument(
        "--probes",
        type=_probes,
        metavar="N",
        help="releases to judge at most, 2 or more (default: log2 of their number, and 4)",
    )
    add_budget(parser, "for a judgement", _BUDGET)
    add_session_arguments(parser)
    add_folders(parser, "manifests", "folder in which stacks are declared, too; may be repeated")
    for option in OPTIONS:
        if option.name in _OF_UPGRADES:
            reading: dict[str, Any] = {"type": option.read, "metavar": option.metavar}
            parser.add_argument(option.flag, dest=option.name, help=option.help, **reading)


def _probes(text: str) -> int:
    if text == "1":
        raise argparse.ArgumentTypeError("the ends and their neighbours need 2 or more")
    return positive(text)


def bisect(options: argparse.Namespace) -> int:
    """Bisect; return the exit status that the help of ``mlms bisect`` tells.

    ``file`` of the options is the record, with which ``resume`` goes on.
    """
    from pytest_mlms.core.errors import MlmsError
    from pytest_mlms.explain.bisect.gate import check_quantity
    from pytest_mlms.explain.bisect.question import read_point
    from pytest_mlms.explain.bisect.record import hold_record

    point = read_point(options.nodeid)
    check_quantity(options.quantity, options.tolerance, point)
    locks = [_is_lock(text) for text in (options.good, options.bad)]
    if locks[0] != locks[1]:
        raise MlmsError("--good and --bad are a release and a lock file; name two of one kind")
    search = _bisect_locks if all(locks) else _bisect_releases
    with hold_record(options.file):
        return search(point, options)


def _words_of_upgrades(options: argparse.Namespace) -> tuple[str, ...]:
    """Return the options of pytest that each judgement has."""
    values = {name: getattr(options, name) for name in _OF_UPGRADES}
    if values["outputs"] == 0:
        values["outputs"] = "all"
    return tuple(f"--mlms-{name}={value}" for name, value in values.items() if value is not None)


def _is_lock(text: str) -> bool:
    return text.startswith("git:") or text.endswith(_LOCKS) or Path(text).is_file()


def _bisect_releases(point: Point, options: argparse.Namespace) -> int:
    """Search the releases of one package."""
    from pytest_mlms.explain.bisect.question import End, exact_release, framework_for
    from pytest_mlms.explain.bisect.releases import (
        bisect_releases,
        release_stacks,
        releases_between,
    )
    from pytest_mlms.explain.bisect.search import most_probes
    from pytest_mlms.project import project_stacks

    good = exact_release(options.good, "--good")
    bad = exact_release(options.bad, "--bad")
    framework = framework_for(point, [options.good, *options.more])
    declared = project_stacks([point.path], options.manifests)
    like = _like(declared, options)
    record = _record(point, framework, (End(str(good)), End(str(bad))), options, like)
    if not record.releases:
        record.package = good.name
        python = like.python if like else None
        record.releases = releases_between(good, bad, _pip_settings(like), options.pre, python)
    stacks = release_stacks(
        record.package, record.releases, framework, options.more, declared, like
    )
    versions = record.releases
    most = options.probes or most_probes(len(versions))
    _print(f"{point.label}, {record.package} {versions[0]} (good) to {versions[-1]} (bad)")
    _print(f"{len(versions)} releases, {most} probes at most")
    bisection = _bisection(point, record, options)
    return _finish(bisection, lambda: bisect_releases(bisection, stacks, most), options)


def _like(declared: Mapping[str, Stack], options: argparse.Namespace) -> Stack | None:
    """Return the stack that --stack names; raises MlmsError for none, and for a container."""
    from pytest_mlms.core.errors import MlmsError
    from pytest_mlms.measure.agent.registry import find_predictors
    from pytest_mlms.provide.stacks.declared import resolve
    from pytest_mlms.provide.stacks.interpreters import probe

    if options.stack is None:
        return None
    stack = resolve(options.stack, declared, find_predictors(options.predictors), "--stack")
    if stack.container:
        raise MlmsError(f"--stack {options.stack} is a container, which has releases of its own")
    if stack.agent:
        raise MlmsError(f"--stack {options.stack} is a program, of which no index has releases")
    python = stack.python
    if stack.interpreter and stack.interpreter != "current":
        python = ".".join(map(str, probe(stack.interpreter).release))
    return replace(stack, interpreter=None, python=python)


def _pip_settings(like: Stack | None) -> PipSettings:
    from pytest_mlms.core.errors import MlmsError
    from pytest_mlms.provide.artifacts.package_index import pip_settings
    from pytest_mlms.provide.artifacts.transfer import DownloadError
    from pytest_mlms.provide.stacks.index import settings_of

    try:
        return settings_of(like) if like else pip_settings()
    except DownloadError as error:
        raise MlmsError(str(error)) from None


def _bisect_locks(point: Point, options: argparse.Namespace) -> int:
    """Search the packages that differ between two lock files, then the releases of one."""
    from pytest_mlms.core.errors import MlmsError
    from pytest_mlms.explain.bisect.locks import end_of, locked_stacks
    from pytest_mlms.explain.bisect.packages import bisect_packages, ends_of

    if options.more or options.stack:
        raise MlmsError("lock files have all of a stack; leave out --with and --stack")
    good, bad = locked_stacks(point, options.good, options.bad)
    ends = ends_of(good, bad)
    record = _record(
        point, good.framework, (end_of(options.good, good), end_of(options.bad, bad)), options, good
    )
    record.changed = [change.name for change in ends.changes]
    _print(f"{point.label}, {options.good} (good) to {options.bad} (bad)")
    for change in ends.changes:
        _print(f"  {change}")
    bisection = _bisection(point, record, options)
    return _finish(bisection, lambda: bisect_packages(bisection, ends, options.probes), options)


def _record(
    point: Point,
    framework: str,
    ends: tuple[End, End],
    options: argparse.Namespace,
    like: Stack | None,
) -> Record:
    """Return the record to go on with, or a new one; an old file is set aside then."""
    from pytest_mlms.explain.bisect.question import question_of
    from pytest_mlms.explain.bisect.record import Record, read_record

    question = question_of(
        point,
        framework,
        ends,
        options.quantity,
        options.tolerance,
        options.more,
        options.stack,
        like,
        child_options(options).predictors,
        _words_of_upgrades(options),
    )
    if options.resume:
        record = read_record(options.file, question)
        record.reopen()
        return record
    began = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    return Record(question, began=began, quantity=options.quantity)


def _bisection(point: Point, record: Record, options: argparse.Namespace) -> Bisection:
    """Return the bisection of a record, whose file is there then."""
    from pytest_mlms.explain.bisect.bisection import Bisection
    from pytest_mlms.explain.bisect.gate import Gate
    from pytest_mlms.explain.bisect.record import set_aside
    from pytest_mlms.explain.bisect.text import probe_lines

    gate = Gate(
        point=point,
        child=replace(child_options(options), more=_words_of_upgrades(options)),
        seconds=(options.budget, _DURATION),
        tolerance=options.tolerance,
        tell_step=show_step,
    )
    earlier = None if options.resume else set_aside(options.file)
    if earlier:
        print_error(f"{options.file} was there; it is {earlier} now")
    record.write(options.file)

    def tell(probe: Probe) -> None:
        for line in probe_lines(probe, record):
            _print(line)

    return Bisection(record, options.file, gate, tell)


def _finish(bisection: Bisection, search: Callable[[], None], options: argparse.Namespace) -> int:
    """Search, and print the answer; where that is interrupted, say how to go on."""
    from pytest_mlms.core.errors import MlmsError
    from pytest_mlms.explain.bisect.text import answer_lines

    record = bisection.record
    try:
        search()
    except (KeyboardInterrupt, MlmsError):
        print_error(f"{options.file} has what was judged so far; go on with:")
        print_error(f"  {resuming()}")
        raise
    answer = record.answer
    assert answer is not None, "a search ends with an answer"
    for line in answer_lines(record, answer):
        _print(line)
    place = options.results / answer.run
    _print(f"{options.file} has all judgements; the last one is in {place}")
    return _STATUS[answer.kind]


def resuming() -> str:
    """Return the command that goes on."""
    words = [word for word in sys.argv[1:] if word != "--resume"]
    return shlex.join(["mlms", *words, "--resume"])


def _print(line: str) -> None:
    print(line, flush=True)
