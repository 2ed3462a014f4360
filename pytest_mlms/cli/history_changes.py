"""``mlms history changes`` and ``mlms history accept``: what changed, and what people say of it."""

from __future__ import annotations

import argparse
import dataclasses
import getpass
import json
import shlex
import textwrap
from collections import Counter
from collections.abc import Sequence
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
from pytest_mlms.core.redaction import redact
from pytest_mlms.core.text import visible
from pytest_mlms.core.units import format_quantity
from pytest_mlms.decide.upgrade.labels import percent
from pytest_mlms.show.report.table import KEEP, format_table

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from pytest_mlms.keep.history.change_groups import ChangeGroup, Difference
    from pytest_mlms.keep.history.change_scan import Scanned
    from pytest_mlms.keep.history.changes import Change
    from pytest_mlms.keep.history.shifts import Sight

_WIDTH = 80  # columns of a log
_HEADER = ("change", "before → after", "ratio", "95 %")
_MOST_DIFFERENCES = 12
_SHORT_SHA = 7
_TENFOLD = 9.0  # what few points leave open is larger
_MOST_SIGHTS = 500  # series; all of their points are read


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
        help="make the stacks on both sides of each open change again, and judge them in turns",
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
        _confirm(history, selected, options)
        selected = _selected(history, options.expression)
    shown = selected
    if not options.all:
        shown = [change for change in selected if change.status in ("open", "confirmed")]
    groups = group_changes(history, shown)
    seen = _sights(history, options.expression)
    if options.format == "json":
        found = [dataclasses.asdict(group) for group in groups]
        sights = None if seen is None else [dataclasses.asdict(each) for each in seen]
        document = {**dataclasses.asdict(scanned), "groups": found, "sights": sights}
        print(json.dumps(document, indent=1))
    else:
        _print_groups(groups)
        _print_summary(scanned, selected)
        _print_sights(seen)
    fails = [change for change in selected if change.status == "confirmed" and change.is_worse]
    if not options.fail or not fails:
        return 0
    numbers = " ".join(str(change.id) for change in fails)
    address = shlex.quote(redact(options.history))
    print_error(
        f"confirmed and worse: {numbers}; mend them, or where the new level is right: "
        f"mlms history accept {numbers} --reason 'why' --history {address}"
    )
    return 1


def _confirm(history: Engine, changes: Sequence[Change], options: argparse.Namespace) -> None:
    """Confirm open changes; tell the outcome of each on standard error.

    The changes of a host's control item are left out: others are compared with them.
    """
    from pytest_mlms.keep.history.confirmation import confirm

    waiting = [change for change in changes if change.status == "open" and not change.control]
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
        name = f"change {change.id} ({model}, {change.quantity} ×{change.ratio:.3f})"
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
    from pytest_mlms.keep.history.queries import series_names
    from pytest_mlms.keep.history.selection import select_series

    with history.connect() as connection:
        names = series_names(connection)
        wanted = select_series(connection, expression) if expression else list(names)
    return sights(history, wanted) if len(wanted) <= _MOST_SIGHTS else None


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


def _print_summary(scanned: Scanned, selected: Sequence[Change]) -> None:
    counts: dict[str, int] = {}
    for change in selected:
        counts[change.status] = counts.get(change.status, 0) + 1
    found = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
    print(
        f"{scanned.series:,} series, {scanned.searched:,} with new points: {found or 'no change'}"
    )
    if scanned.too_few:
        print(
            f"{scanned.too_few:,} have fewer than {scanned.least} points: too few to tell a change"
        )
    if counts.get("open"):
        print("open ones are suspicions: mlms history changes --confirm measures both sides")


def _print_sights(seen: Sequence[Sight] | None) -> None:
    """Say which change could be seen, as "no change" is nothing where none could."""
    if seen is None:
        print(f"how small steps could be is told of {_MOST_SIGHTS:,} series: choose some by -k")
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
            f"is {_sizes(at_once)}",
            _WIDTH,
        )
    )


def _sizes(shares: Sequence[float]) -> str:
    least, most = (_size(share) for share in (shares[0], shares[-1]))
    return f"{least} or more" if least == most else f"{least} to {most} or more"


def _size(share: float) -> str:
    return "tenfold" if share > _TENFOLD else percent(share, ".2g")
