"""``mlms history changes`` and ``mlms history accept``: what changed, and what people say of it."""

from __future__ import annotations

import argparse
import dataclasses
import getpass
import json
import os
import shlex
import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_mlms.cli.arguments import (
    add_expression,
    add_session_arguments,
    add_trust,
    child_options,
    output_width,
    positive,
    print_error,
    show_step,
)
from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.text import redact, visible
from pytest_mlms.core.units import format_quantity
from pytest_mlms.decide.upgrade.labels import percent
from pytest_mlms.provide.artifacts.fetch import default_cache
from pytest_mlms.show.report.table import KEEP, format_table

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from pytest_mlms.keep.history.change_groups import ChangeGroup, Difference
    from pytest_mlms.keep.history.change_scan import Scanned
    from pytest_mlms.keep.history.changes import Change
    from pytest_mlms.keep.history.shifts import Sight
    from pytest_mlms.keep.history.version_steps import VersionChange

_WIDTH = 80  # columns of a log
_HEADER = ("change", "before → after", "ratio", "95 %")
_MOST_DIFFERENCES = 12
_SHORT_SHA = 7
_TENFOLD = 9.0  # what few points leave open is larger
_MOST_SIGHTS = 500  # series; all of their points are read
_MOST_NAMED = 10  # suspicions of a change of versions


def add_changes(commands: Any, common: argparse.ArgumentParser) -> None:
    """Add ``mlms history changes``."""
    parser = commands.add_parser(
        "changes", parents=[common], help="find series that became slower, faster, worse or better"
    )
    add_expression(parser, "only series whose names match, as pytest's -k: 'digits and not p99'")
    parser.add_argument(
        "--all",
        action="store_true",
        help="also changes that are accepted, dismissed or undone",
    )
    parser.add_argument(
        "--fail",
        action="store_true",
        help="end with status 1 if a change for the worse is confirmed; suspicions never fail",
    )
    parser.add_argument("--format", choices=["table", "json"], default="table")
    parser.add_argument(
        "--confirm",
        action="store_true",
        help="make the stacks on both sides of each open change or suspicion again, and judge them "
        "in turns",
    )
    parser.add_argument(
        "--limit", type=positive, metavar="N", help="confirm the first N changes only"
    )
    add_session_arguments(parser)
    add_trust(parser)
    parser.set_defaults(run=_changes)


def add_accept(commands: Any, common: argparse.ArgumentParser) -> None:
    """Add ``mlms history accept``."""
    parser = commands.add_parser(
        "accept", parents=[common], help="accept changes: their new levels are right from now on"
    )
    parser.add_argument("changes", nargs="+", type=int, metavar="CHANGE", help="its number")
    parser.add_argument(
        "--reason", required=True, type=_reason, help="why, for those who ask later"
    )
    parser.set_defaults(run=_accept)


def _reason(text: str) -> str:
    if not text.strip():
        raise argparse.ArgumentTypeError("it is empty; say why the change is accepted")
    return text


def _changes(options: argparse.Namespace) -> int:
    """Search, and print the changes; return 1 where a change that fails is confirmed."""
    from pytest_mlms.keep.history.change_groups import group_changes
    from pytest_mlms.keep.history.change_scan import scan

    if options.limit and not options.confirm:
        raise MlmsError("--limit does nothing without --confirm; add --confirm")
    history = _existing(options.history)
    scanned = scan(history)
    selected = _selected(history, options.expression)
    if options.confirm:
        _confirm(history, selected, _version_changes(history, options.expression), options)
        selected = _selected(history, options.expression)
    shown = selected
    if not options.all:
        shown = [change for change in selected if change.status in ("open", "confirmed")]
    groups = group_changes(history, shown)
    versions = _version_changes(history, options.expression)
    seen = _sights(history, options.expression)
    if options.format == "json":
        document = {
            **dataclasses.asdict(scanned),
            "groups": _plain(groups),
            "versions": _plain(versions),
            "sights": _plain(seen),
        }
        print(json.dumps(document, indent=1))
    else:
        _print_groups(groups)
        _print_summary(scanned, selected, options)
        _print_versions(versions or [], options)
        _print_sights(seen)
    fails = [change for change in selected if change.status == "confirmed" and change.is_worse]
    if not options.fail or not fails:
        return 0
    numbers = [str(change.id) for change in fails]
    address = redact(options.history)
    print_error(
        f"confirmed and worse: {' '.join(numbers)}; mend them, or where the new level is right: "
        f"mlms history accept {shlex.join(numbers)} --reason 'why' --history {shlex.quote(address)}"
    )
    return 1


def _plain(records: Sequence[Any] | None) -> list[dict[str, Any]] | None:
    return None if records is None else [dataclasses.asdict(record) for record in records]


def _confirm(
    history: Engine,
    changes: Sequence[Change],
    versions: Sequence[VersionChange] | None,
    options: argparse.Namespace,
) -> None:
    """Confirm open changes and those that are named; tell the outcome of each on standard error.

    The changes of a host's control item are left out: others are compared with them.
    """
    from pytest_mlms.keep.history.confirmation import confirm

    named = [change for version in versions or [] for change in version.suspected]
    waiting = [
        change for change in [*changes, *named] if change.status == "open" and not change.control
    ]
    chosen = waiting[: options.limit]
    if not chosen:
        print_error("no open change to confirm")
        return
    print_error(f"confirming {len(chosen)} of {len(waiting)} open changes")
    children = child_options(options)
    for finding in confirm(history, chosen, children, show_step, options.trusted):
        cause = finding.cause or "still open"
        change = finding.change
        model = change.parts["manifest"]
        number = f"change {change.id}" if change.id else "suspicion"
        name = f"{number} ({model}, {change.quantity} ×{change.ratio:.3f})"
        print_error(f"{name}: {cause}: {finding.reason}")


def _accept(options: argparse.Namespace) -> int:
    from pytest_mlms.keep.history.changes import accept_changes

    history = _existing(options.history)
    accepted = accept_changes(history, options.changes, options.reason, _user())
    for number in dict.fromkeys(options.changes):
        done = "accepted" if number in accepted else "was accepted before"
        print(f"change {number}: {done}")
    return 0


def _existing(address: str) -> Engine:
    """Return the history at an address; raises HistoryError where there is none."""
    from pytest_mlms.keep.history.store import open_history, open_to_read

    open_to_read(address).dispose()
    return open_history(address)


def _user() -> str | None:
    """Return the user's name; None where the system knows none, as in some containers."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return None


def _selected(history: Engine, expression: str) -> list[Change]:
    """Return the changes of the series that an expression selects; raises HistoryError."""
    from pytest_mlms.keep.history.changes import read_changes
    from pytest_mlms.keep.history.selection import select_series

    changes = read_changes(history)
    if not expression:
        return changes
    with history.connect() as connection:
        series = set(select_series(connection, expression))
    return [change for change in changes if change.series in series]


def _sights(history: Engine, expression: str) -> list[Sight] | None:
    """Return how far the selected series can be seen to change; None for too many of them."""
    from pytest_mlms.keep.history.change_scan import sights

    wanted = _wanted(history, expression)
    return sights(history, wanted) if len(wanted) <= _MOST_SIGHTS else None


def _version_changes(history: Engine, expression: str) -> list[VersionChange] | None:
    """Return the newest changes of software in the selected series; None for too many of them."""
    from pytest_mlms.keep.history.version_steps import version_changes

    wanted = _wanted(history, expression)
    return version_changes(history, wanted) if len(wanted) <= _MOST_SIGHTS else None


def _wanted(history: Engine, expression: str) -> list[int]:
    from pytest_mlms.keep.history.queries import series_names
    from pytest_mlms.keep.history.selection import select_series

    with history.connect() as connection:
        if expression:
            return list(select_series(connection, expression))
        return list(series_names(connection))


def _print_groups(groups: Sequence[ChangeGroup]) -> None:
    width = output_width()
    for group in groups:
        for line in _heading(group):
            print(textwrap.fill(visible(line), width, subsequent_indent="  "))
        rows = [_row(change) for change in group.changes]
        header, *of_rows = format_table(_HEADER, rows, width, left=1)
        print("\n".join(header))
        for change, lines in zip(group.changes, of_rows, strict=True):
            print("\n".join(lines))
            for note in _notes(change):
                print(
                    textwrap.fill(visible(note), width, initial_indent="  ", subsequent_indent="  ")
                )
        print()


def _heading(group: ChangeGroup) -> list[str]:
    date = group.started[:10]
    lines = [f"since run {group.first_run} of {date}, on {group.machine}"]
    if group.last_run:
        lines.append(f"  last run before: {group.last_run}")
    shown = [_difference_label(side) for side in group.differences]
    more = len(shown) - _MOST_DIFFERENCES
    if more > 0:
        shown = [*shown[:_MOST_DIFFERENCES], f"and {more} more: --format json has them"]
    lines.append(f"  differs: {', '.join(shown) or 'nothing that results record'}")
    return lines


def _difference_label(side: Difference) -> str:
    before = side.before or "none"
    after = side.after or "none"
    if side.name == "git":
        return f"git {_short(before)}..{_short(after)}"
    return f"{side.name} {before} → {after}"


def _short(commit: str) -> str:
    star = "*" if commit.endswith("*") else ""
    return f"{commit.rstrip('*')[:_SHORT_SHA]}{star}"


def _row(change: Change) -> tuple[str, ...]:
    from pytest_mlms.keep.history.series import case_label

    before = format_quantity(change.before, change.unit)
    after = format_quantity(change.after, change.unit)
    ratio = interval = "-"
    if change.before > 0 and change.after > 0:
        ratio = _percent(change.ratio)
        if change.low is not None and change.high is not None:
            interval = f"{_percent(change.low)} to {_percent(change.high)}"
    direction = "worse" if change.is_worse else "better"
    series = f"{change.parts['manifest']} {case_label(change.parts)} {change.quantity}"
    return (
        f"{change.id} {change.status}, {direction}: {series}",
        f"{before} → {after}".replace(" ", KEEP),
        ratio.replace(" ", KEEP),
        interval.replace(" ", KEEP),
    )


def _percent(ratio: float) -> str:
    return f"{ratio - 1:+.1%}".replace("%", " %")


def _notes(change: Change) -> list[str]:
    """Return the notes on a change, a line each."""
    notes = []
    if change.kind == "drift":
        notes.append("slow drift: found by the distance from where the level began")
    if change.undone_run:
        notes.append(f"the old level is back since run {change.undone_run}")
    if change.cause:
        by = f", by run {change.confirmed_by}" if change.confirmed_by else ""
        notes.append(f"cause: {change.cause}{by}")
    if change.reason:
        by = f" ({change.decided_by}, {change.decided})" if change.decided else ""
        notes.append(f"reason: {change.reason}{by}")
    return notes


def _print_summary(
    scanned: Scanned, selected: Sequence[Change], options: argparse.Namespace
) -> None:
    counts: dict[str, int] = {}
    for change in selected:
        counts[change.status] = counts.get(change.status, 0) + 1
    found = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
    print(
        f"{scanned.series:,} series, {scanned.searched:,} with new points: {found or 'no change'}"
    )
    if scanned.too_few:
        print(
            f"{scanned.too_few:,} have fewer than {scanned.least} points: too few to tell a change "
            "where no version changed"
        )
    if counts.get("open"):
        print(f"open ones are suspicions: {_confirm_command(options)} measures both sides")


def _confirm_command(options: argparse.Namespace) -> str:
    """Return the command that confirms what these options have selected."""
    words = ["mlms", "history", "changes", "--confirm"]
    if options.history != os.environ.get("MLMS_HISTORY", "mlms-results/history.sqlite"):
        words.append(f"--history={redact(options.history)}")
    if options.expression:
        words.append(f"-k{options.expression}")
    if options.results != Path("mlms-results"):
        words.append(f"--mlms-results={options.results}")
    words += [f"--mlms-predictors={folder}" for folder in options.predictors]
    if options.cache != default_cache():
        words.append(f"--mlms-cache={options.cache}")
    if options.allow_code:
        words.append("--mlms-allow-code")
    words += [f"--mlms-env-passthrough={name}" for name in options.env_passthrough]
    words += [f"--trust-run={run}" for run in options.trusted]
    return shlex.join(words)


def _print_versions(versions: Sequence[VersionChange], options: argparse.Namespace) -> None:
    """Print the newest changes of software whose effect too few runs tell."""
    is_any_suspected = False
    for version in versions:
        if version.found < version.series:
            for line in _version_lines(version):
                indent = " " * (len(line) - len(line.lstrip()) + 2)
                print(textwrap.fill(visible(line), output_width(), subsequent_indent=indent))
            is_any_suspected |= any(not change.control for change in version.suspected)
    if is_any_suspected:
        print(f"confirm: {_confirm_command(options)}")


def _version_lines(version: VersionChange) -> Iterator[str]:
    runs = "the last run" if version.runs == 1 else f"the last {version.runs} runs"
    shown = ", ".join(_difference_label(side) for side in version.differences)
    yield f"version changed with {runs}, from {version.first_run} on: {shown}"
    if version.found:
        yield f"  {version.found:,} of {version.series:,} series have a change there"
    for change in version.suspected[:_MOST_NAMED]:
        yield f"  suspected, {_suspicion(change)}"
    if len(version.suspected) > _MOST_NAMED:
        yield f"  and {len(version.suspected) - _MOST_NAMED} more: --format json has them"
    if version.too_few:
        yield f"  {version.too_few:,} of {version.series:,} series have too few runs before it"
    if version.least:
        yield f"  too few runs to see less than {_range(*version.least)} in a single series"


def _suspicion(change: Change) -> str:
    """Return a change that is named, with the interval of its prediction."""
    from pytest_mlms.keep.history.series import case_label

    direction = "worse" if change.is_worse else "better"
    series = f"{change.parts['manifest']} {case_label(change.parts)} {change.quantity}"
    return f"{direction}: {series} ×{change.ratio:.3f} ({change.low:.3f} to {change.high:.3f})"


def _print_sights(seen: Sequence[Sight] | None) -> None:
    """Say which change could be seen, as "no change" is nothing where none could."""
    if seen is None:
        print(f"how small steps could be is told of {_MOST_SIGHTS:,} series: choose some by -k")
        print("so is which of them a version may have changed, beside those that are listed")
    if not seen:
        return
    counts = Counter(sight.points for sight in seen)
    after = [f"{points} runs in {count:,} series" for points, count in sorted(counts.items())]
    sizes = sorted(sight.change for sight in seen)
    at_once = sorted(sight.with_software for sight in seen)
    print(
        textwrap.fill(
            f"a step from the next run on would be seen after {', '.join(after)}, four times of "
            f"five if it is {_sizes(sizes)}; where a version changes with it, after one run if it "
            f"is {_sizes(at_once)} in all of them",
            _WIDTH,
        )
    )


def _sizes(shares: Sequence[float]) -> str:
    return f"{_range(shares[0], shares[-1])} or more"


def _range(least: float, most: float) -> str:
    low, high = _size(least), _size(most)
    return low if low == high else f"{low} to {high}"


def _size(share: float) -> str:
    return "tenfold" if share > _TENFOLD else percent(share, ".2g")
