"""``mlms lock``: a run written to mlms.lock, a run compared with it, two of them compared."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pytest_mlms.cli.arguments import add_tolerance, add_trust, print_error
from pytest_mlms.config import LOCK_FILE
from pytest_mlms.core.files import write_atomically
from pytest_mlms.core.serialization import to_plain
from pytest_mlms.keep.lockfile.difference import (
    LockDifference,
    difference_lines,
    difference_of,
    timing_lines,
)
from pytest_mlms.keep.lockfile.from_results import RunItems, items_of_run, renewed
from pytest_mlms.keep.lockfile.lock import TOLERANCE, Lock
from pytest_mlms.keep.lockfile.reading import LockError, lock_text, read_lock, read_version
from pytest_mlms.keep.results.checked_lines import read_lines
from pytest_mlms.keep.results.recorded_manifest import is_of_project
from pytest_mlms.project import project_stacks
from pytest_mlms.provide.stacks.trust import EVERYTHING, Trust

_LATEST = Path("mlms-results/latest")
_NOT_LOCKED = "not locked"
_NOT_MEASURED = "locked, but not measured"


def add_lock(commands: Any) -> None:
    """Add the command."""
    lock = commands.add_parser("lock", help="write a run to mlms.lock, or compare a run with it")
    actions = lock.add_subparsers(required=True, metavar="ACTION")

    write = actions.add_parser("write", help="write the items of a run to the lock file")
    _add_run(write)
    write.add_argument(
        "--prune", action="store_true", help="drop the items that the run doesn't have"
    )
    write.add_argument("--force", action="store_true", help="write items that FAILED, too")
    add_trust(write)
    write.set_defaults(run=_write)

    check = actions.add_parser("check", help="compare a run with the lock file")
    _add_run(check)
    _add_format(check)
    text = "how far outside of its interval a timing is told (default: 3%%)"
    add_tolerance(check, text, TOLERANCE)
    check.add_argument(
        "--strict", action="store_true", help="fail for items that aren't locked or didn't run"
    )
    check.set_defaults(run=_check)

    diff = actions.add_parser("diff", help="show what changed between two lock files")
    diff.add_argument("old", nargs="?", default="git:HEAD", metavar="OLD", help="file or git:REV")
    diff.add_argument("new", nargs="?", metavar="NEW", help="file or git:REV (default: the file)")
    _add_file(diff)
    _add_format(diff)
    diff.set_defaults(run=_diff)


def _add_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "results",
        nargs="?",
        type=Path,
        default=_LATEST,
        metavar="RUN",
        help=f"a run's folder, or its results.jsonl (default: {_LATEST})",
    )
    _add_file(parser)


def _add_file(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--file",
        type=Path,
        default=Path(LOCK_FILE),
        metavar="FILE",
        help=f"the lock file (default: {LOCK_FILE})",
    )


def _add_format(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--format", choices=("text", "json"), default="text")


def _items(options: argparse.Namespace) -> RunItems:
    """Return the items of the run that the command names. Raises LockError."""
    path: Path = options.results
    file = path / "results.jsonl" if path.is_dir() else path
    lines = list(read_lines(file))
    if not lines:
        raise LockError(f"there are no results in {path}; run pytest, or name a run's folder")
    trust = _trust(options, lines) if hasattr(options, "trusted") else EVERYTHING
    found = items_of_run(lines, options.file.absolute().parent, trust)
    if found.upgrades and not found.measured and not found.unmeasured:
        problem = f"{path} has upgrades only, which measure two stacks"
        raise LockError(f"{problem}; name a run without --mlms-against")
    return found


def _trust(options: argparse.Namespace, lines: Iterable[Mapping[str, Any]]) -> Trust:
    """Return the trust in a run that is written, beside its versions."""
    path: Path = options.results
    run = path if path.is_dir() else path.parent
    named = {Path(line["manifest"]["path"]) for line in lines if line.get("type") == "item"}
    manifests = [each for each in sorted(named) if is_of_project(each, run.absolute().parent)]
    declared = project_stacks(manifests)
    return Trust.of_run(run, options.trusted, declared.values())


def _write(options: argparse.Namespace) -> int:
    """Write the file; return 1 where an item of the run could not be written."""
    items = _items(options)
    old = read_lock(options.file) if options.file.exists() else Lock()
    measured = items.written(options.force)
    refused = items.refused(options.force)
    kept = old.items.keys() - measured.keys()
    if options.prune:
        kept &= refused.keys()
    new = renewed(old, measured, kept)
    try:
        write_atomically(options.file, lock_text(new))
    except OSError as error:
        raise LockError(f"{options.file} can't be written: {error.strerror}") from None
    for nodeid, reason in refused.items():
        print_error(f"not locked: {nodeid}: {reason}")
    if "FAILED" in refused.values():
        print_error("--force locks what FAILED, as it is")
    parts = [f"{_counted(len(measured))} of the run"]
    if kept:
        parts.append(f"{len(kept)} kept")
    dropped = old.items.keys() - new.items.keys()
    if dropped:
        parts.append(f"{len(dropped)} dropped")
    summary = ", ".join(parts)
    print(f"{options.file}: {summary}")
    return 1 if refused else 0


def _counted(items: int) -> str:
    return f"{items} item" if items == 1 else f"{items} items"


def _check(options: argparse.Namespace) -> int:
    """Compare; return 1 where something other than a timing differs, or nothing is in both."""
    items = _items(options)
    lock = read_lock(options.file)
    run = renewed(Lock(), items.measured, ())
    difference = difference_of(lock, run, options.tolerance)
    if options.format == "json":
        _print_json(difference)
    else:
        _print_check(lock, run, items, difference, options.file)
    differs = difference.has_changes or lock.items.keys().isdisjoint(run.items)
    incomplete = options.strict and (difference.added or difference.removed)
    return 1 if differs or incomplete else 0


def _print_check(
    lock: Lock, run: Lock, items: RunItems, difference: LockDifference, file: Path
) -> None:
    """Print the differences, what could not be compared, and how many items differ."""
    for line in difference_lines(difference, added=_NOT_LOCKED, removed=_NOT_MEASURED):
        print(line)
    for line in timing_lines(difference):
        print(line)

    others = sorted(run.timings.keys() - lock.timings.keys())
    if others and lock.timings:
        reason = f"{file} has none of this class of machines"
        print(f"timings on {others[0]} are not compared: {reason}")
    for nodeid, reason in sorted(items.unmeasured.items()):
        print(f"not compared: {nodeid}: {reason}")

    compared = len(lock.items.keys() & run.items.keys())
    if not compared:
        print(f"{file}: no item of the run is in it; items have the names of their stacks")
        return
    differing = len(difference.differing)
    verdict = f"{differing} differ" if differing else "none differs"
    print(f"{file}: {_counted(compared)} compared, {verdict}")


def _diff(options: argparse.Namespace) -> int:
    """Print what changed between two lock files."""
    old = read_version(options.old, options.file)
    new = read_version(options.new or str(options.file), options.file)
    difference = difference_of(old, new)
    if options.format == "json":
        _print_json(difference)
        return 0
    lines = [*difference_lines(difference), *timing_lines(difference)]
    print("\n".join(lines or ["nothing changed"]))
    return 0


def _print_json(difference: LockDifference) -> None:
    print(json.dumps(to_plain(difference), indent=2, ensure_ascii=False))
