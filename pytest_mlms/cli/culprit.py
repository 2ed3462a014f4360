"""``mlms culprit``: from an upgrade that is worse to a report that somebody upstream can act on.

It bisects, makes a bundle of the release that was found, reduces its model, and writes the report.
"""

from __future__ import annotations

import argparse
import contextlib
import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_mlms.cli.arguments import add_budget, print_error
from pytest_mlms.cli.bisect import add_question, bisect, resuming
from pytest_mlms.cli.culprit_bundle import BUNDLE, Attachment, attach_bundle
from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.text import file_stem

if TYPE_CHECKING:
    from pytest_mlms.explain.bisect.question import Point
    from pytest_mlms.explain.bisect.record import Conclusion, Record
    from pytest_mlms.explain.repro.items import FoundItem

_RECORD = "bisect.json"
_REPORT = "report.md"
_BUDGET = 600.0  # seconds of the reduction
_SAME = "There is no bundle, as the ends are not shown to differ."
_OF_ENDS = {
    "gradual": "No release alone makes the difference: this is about both ends of the search.",
    "range": "It is not known which release it is: this is about both ends of the search.",
}
"""Answer of a bisection that accuses no release -> a note on the report."""


def add_culprit(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "culprit",
        help="find the release that made an upgrade worse, and write a report to send upstream",
        description="Exit status: 0 found, 1 the ends don't differ, 2 only a range, 3 usage.",
    )
    add_question(parser)
    parser.add_argument("--resume", action="store_true", help="go on with what is in DIR")
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help=f"folder for {_RECORD}, {BUNDLE} and {_REPORT} (default: culprit-ITEM)",
    )
    add_budget(parser, "for the reduction of an ONNX model", _BUDGET, "--reduce-budget")
    parser.set_defaults(run=_culprit)


def _culprit(options: argparse.Namespace) -> int:
    """Do all of it; return the exit status of the bisection."""
    from pytest_mlms.explain.bisect.question import read_point
    from pytest_mlms.explain.bisect.record import load_record

    folder = options.out or Path(_default_name(read_point(options.nodeid)))
    _prepare(folder, options)
    options.file = folder / _RECORD
    options.resume = options.resume and options.file.exists()
    try:
        status = bisect(options)
    finally:
        with contextlib.suppress(OSError):  # it stays where something is in it
            folder.rmdir()
    try:
        _report(load_record(options.file), folder, options)
    except KeyboardInterrupt:
        print_error(f"{folder} has what was found so far; go on with:")
        print_error(f"  {resuming()}")
        raise
    return status


def _default_name(point: Point) -> str:
    return f"culprit-{file_stem(str(point.path))}-{point.case}"


def _prepare(folder: Path, options: argparse.Namespace) -> None:
    """Make the folder; what an earlier search has left is renamed, unless this one goes on."""
    from pytest_mlms.explain.bisect.record import set_aside

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        problem = f"{folder} can't be made: {error.strerror}"
        raise MlmsError(f"{problem}; name another folder with --out") from None
    if options.resume:
        return
    for name in (BUNDLE, _REPORT):
        earlier = set_aside(folder / name)
        if earlier:
            print_error(f"{folder / name} was there; it is {earlier} now")


def _report(record: Record, folder: Path, options: argparse.Namespace) -> None:
    """Write the report as far as it is known, then make the bundle, and write the report again."""
    from pytest_mlms.explain.repro.items import find_item

    answer = record.answer
    assert answer is not None, "a bisection ends with an answer"
    found = find_item(_item_of(record, answer), options.results)
    if answer.kind == "same":
        _write(record, found, folder, Attachment(notes=(_SAME,)))
        _tell(folder)
        return
    _write(record, found, folder, Attachment(notes=("The bundle was not finished.",)))
    attachment = attach_bundle(found, record, folder / BUNDLE, options)
    if answer.kind in _OF_ENDS:
        attachment = replace(attachment, notes=(_OF_ENDS[answer.kind], *attachment.notes))
    _write(record, found, folder, attachment)
    _tell(folder)


def _item_of(record: Record, answer: Conclusion) -> str:
    """Return the item that the report is about: of the release, else that of both ends."""
    if answer.kind == "found":
        return f"{answer.run}::{answer.nodeid}"
    ends = [probe for probe in record.probes if probe.purpose == "ends" and probe.run]
    return f"{ends[-1].run}::{ends[-1].nodeid}"


def _write(record: Record, found: FoundItem, folder: Path, attachment: Attachment) -> None:
    from pytest_mlms.core.files import write_atomically
    from pytest_mlms.keep.results.item_line import item_of
    from pytest_mlms.show.pages.item import ItemView
    from pytest_mlms.show.report.upgrade_file import results_name
    from pytest_mlms.show.report.upgrade_report import Evidence, item_report

    item = item_of(ItemView, found.line, found.run / "results.jsonl", 1)
    evidence = Evidence(
        bisection=record,
        departing=attachment.departing,
        model=attachment.model,
        operator=attachment.operator,
        bundle=attachment.name,
        reduced=attachment.reduced,
        checked=attachment.checked,
        notes=attachment.notes,
    )
    path = folder / _REPORT
    try:
        write_atomically(path, item_report(item, results_name(found.run), evidence))
    except OSError as error:
        problem = f"{path} can't be written: {error.strerror}"
        raise MlmsError(f"{problem}; make room, and go on with --resume") from None


def _tell(folder: Path) -> None:
    """Print where everything is; the report comes last."""
    if (folder / BUNDLE).exists():
        print(f"{folder / BUNDLE} replays it: python {shlex.quote(str(folder / BUNDLE))}")
    print(f"the report, to read and to send: {folder / _REPORT}", flush=True)
