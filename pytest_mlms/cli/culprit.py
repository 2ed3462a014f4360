"""``mlms culprit``: from an upgrade that is worse to a report that somebody upstream can act on.

It bisects, makes a bundle of the release that was found, reduces its model, and writes the report.
"""

from __future__ import annotations

import argparse
import contextlib
import shlex
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_mlms.cli.arguments import add_budget, making_of, print_error, show_step
from pytest_mlms.cli.bisect import add_question, bisect, resuming
from pytest_mlms.cli.reduce import search_reduction
from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.extras import INSTALL, missing_extra
from pytest_mlms.core.text import anonymous, file_stem

if TYPE_CHECKING:
    from pytest_mlms.explain.bisect.record import Record
    from pytest_mlms.explain.repro.bundle import Bundle
    from pytest_mlms.explain.repro.items import FoundItem
    from pytest_mlms.show.report.upgrade_report import Evidence

_BUNDLE = "repro.zip"
_RECORD = "bisect.json"
_REPORT = "report.md"
_BUDGET = 600.0  # seconds of the reduction
_SAME = "There is no bundle, as the ends are not shown to differ."
_OF_ENDS = {
    "gradual": "No release alone makes the difference: this is about both ends of the search.",
    "range": "It is not known which release it is: this is about both ends of the search.",
}
"""Answer of a bisection that accuses no release -> a note on the report."""

_REDUCED = "Reduced to "
_DEPARTING = "In the whole model: first departing layer: "
_NOT_REDUCED = "Not reduced: "
_CHECKED = "Replayed where it was made: "
"""The beginnings of the bundle's notes on what was done. They tell --resume, too."""

_NOT_SHOWN = "it does not show there"


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
        help=f"folder for {_RECORD}, {_BUNDLE} and {_REPORT} (default: culprit-ITEM)",
    )
    add_budget(parser, "for the reduction of an ONNX model", _BUDGET, "--reduce-budget")
    parser.set_defaults(run=_culprit)


def _culprit(options: argparse.Namespace) -> int:
    """Do all of it; return the exit status of the bisection."""
    from pytest_mlms.explain.bisect.question import read_point
    from pytest_mlms.explain.bisect.record import load_record

    point = read_point(options.nodeid)
    folder = options.out or Path(f"culprit-{file_stem(str(point.path))}-{point.case}")
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


def _prepare(folder: Path, options: argparse.Namespace) -> None:
    """Make the folder; rename files of an earlier search, unless this one goes on."""
    from pytest_mlms.explain.bisect.record import set_aside

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        problem = f"{folder} can't be made: {error.strerror}"
        raise MlmsError(f"{problem}; name another folder with --out") from None
    if options.resume:
        return
    for name in (_BUNDLE, _REPORT):
        earlier = set_aside(folder / name)
        if earlier:
            print_error(f"{folder / name} was there; it is {earlier} now")


def _report(record: Record, folder: Path, options: argparse.Namespace) -> None:
    """Write the report as far as it is known, then make the bundle, and write the report again."""
    from pytest_mlms.explain.repro.items import find_item
    from pytest_mlms.show.report.upgrade_report import Evidence

    answer = record.answer
    assert answer is not None, "a bisection ends with an answer"
    item = f"{answer.run}::{answer.nodeid}"
    if answer.kind != "found":
        ends = [probe for probe in record.probes if probe.purpose == "ends" and probe.run]
        item = f"{ends[-1].run}::{ends[-1].nodeid}"
    found = find_item(item, options.results)
    if answer.kind == "same":
        _write(found, folder, Evidence(bisection=record, notes=(_SAME,)))
    else:
        _write(found, folder, Evidence(bisection=record, notes=("The bundle was not finished.",)))
        evidence = attach_bundle(found, record, folder / _BUNDLE, options)
        if answer.kind in _OF_ENDS:
            evidence = replace(evidence, notes=(_OF_ENDS[answer.kind], *evidence.notes))
        _write(found, folder, evidence)
    if (folder / _BUNDLE).exists():
        print(f"{folder / _BUNDLE} replays it: python {shlex.quote(str(folder / _BUNDLE))}")
    print(f"the report, to read and to send: {folder / _REPORT}", flush=True)


def _write(found: FoundItem, folder: Path, evidence: Evidence) -> None:
    from pytest_mlms.core.files import write_atomically
    from pytest_mlms.keep.results.item_line import item_of
    from pytest_mlms.show.pages.item import ItemView
    from pytest_mlms.show.report.upgrade_report import item_report, results_name

    item = item_of(ItemView, found.line, found.run / "results.jsonl", 1)
    path = folder / _REPORT
    try:
        write_atomically(path, item_report(item, results_name(found.run), evidence))
    except OSError as error:
        problem = f"{path} can't be written: {error.strerror}"
        raise MlmsError(f"{problem}; make room, and go on with --resume") from None


def attach_bundle(
    found: FoundItem, record: Record, path: Path, options: argparse.Namespace
) -> Evidence:
    """Write the bundle of an upgrade that regressed, with a smaller model if there is one.

    A bundle that an earlier search has finished is kept. What can't be done is told, and noted.
    """
    from pytest_mlms.show.report.upgrade_report import Evidence

    try:
        if not _is_finished(path):
            _make(found, record, path, options)
        return replace(_described(path), bisection=record)
    except Exception as error:  # the bisection took long, and its report must not be lost
        print_error(f"there is no bundle: {_reason(error)}")
        notes = (f"There is no bundle: {_reason(error)}",)
        return Evidence(bisection=record, notes=notes)


def _is_finished(path: Path) -> bool:
    """Return whether an earlier search has finished the bundle, and lacked no package for it."""
    if not path.exists():
        return False
    earlier = _described(path)
    lacked = any(INSTALL in note for note in earlier.notes)
    return bool(earlier.checked) and not lacked


def _make(found: FoundItem, record: Record, path: Path, options: argparse.Namespace) -> None:
    """Make the bundle, first with the whole model, so that it is there whatever happens next."""
    from pytest_mlms.explain.repro.archive import write_bundle
    from pytest_mlms.explain.repro.making import bundle_of_item

    print("making the bundle", flush=True)
    whole = bundle_of_item(found, making_of(options, record.quantity, [found.run.name]))
    write_bundle(whole, path)
    with tempfile.TemporaryDirectory(prefix="mlms-culprit-") as folder:
        try:
            bundle = _reduced(whole, Path(folder), options)
        except Exception as error:  # the bundle has the whole model then
            print_error(f"the model is not reduced: {_reason(error)}")
            bundle = _noted(whole, f"{_NOT_REDUCED}{_reason(error)}")
        bundle = _checked(bundle, options)
        does_not_show = bundle.notes[-1].startswith(f"{_CHECKED}{_NOT_SHOWN}")
        if does_not_show and bundle.files != whole.files:
            reason = "the smaller model does not show it in a replay"
            bundle = _checked(_noted(whole, f"{_NOT_REDUCED}{reason}"), options)
        write_bundle(bundle, path)


def _reduced(whole: Bundle, folder: Path, options: argparse.Namespace) -> Bundle:
    """Return the bundle with a smaller model, or else the whole one, with notes on the findings."""
    from pytest_mlms.explain.reduce.judging import check_reducible
    from pytest_mlms.explain.reduce.result import departure_text, reduction_text, result_lines

    check_reducible(whole)
    print("reducing the model", flush=True)
    reduction = search_reduction(whole, folder, options.reduce_budget, options.cache)
    for line in result_lines(reduction):
        print(line, flush=True)
    notes = []
    if reduction.layer is not None:
        notes.append(f"In the whole model: {departure_text(reduction.layer)}")
    if reduction.bundle is None:
        return _noted(whole, *notes, f"{_NOT_REDUCED}{reduction.reason}")
    return _noted(reduction.bundle, *notes, f"{_REDUCED}{reduction_text(reduction)}")


def _checked(bundle: Bundle, options: argparse.Namespace) -> Bundle:
    """Replay a bundle here, and note its outcome."""
    from pytest_mlms.explain.repro.check import shows

    print("replaying the bundle", flush=True)
    try:
        seen = shows(bundle, options.cache, show_step)
    except Exception as error:  # it may be replayed elsewhere
        print_error(f"the bundle can't be replayed here: {_reason(error)}")
        return _noted(bundle, f"{_CHECKED}it can't be, {_reason(error)}")
    outcome = seen.summary if seen.shows else f"{_NOT_SHOWN}, {seen.summary}"
    print(f"  {outcome}", flush=True)
    return _noted(bundle, f"{_CHECKED}{outcome}")


def _noted(bundle: Bundle, *notes: str) -> Bundle:
    """Return a bundle with more notes, which name nobody's paths."""
    return replace(bundle, notes=(*bundle.notes, *map(anonymous, notes)))


def _described(path: Path) -> Evidence:
    """Return the evidence that a bundle and its notes have."""
    from pytest_mlms.explain.repro.archive import read_bundle
    from pytest_mlms.explain.repro.small_model import SmallModel, small_model
    from pytest_mlms.show.report.upgrade_report import Evidence

    texts = {}
    with tempfile.TemporaryDirectory(prefix="mlms-culprit-") as folder:
        bundle = read_bundle(path, Path(folder))
        for note in bundle.notes:
            for beginning in (_DEPARTING, _REDUCED, _NOT_REDUCED, _CHECKED):
                if note.startswith(beginning):
                    texts[beginning] = note.removeprefix(beginning)
        model = small_model(bundle) if texts.get(_REDUCED) else SmallModel()
    whole = texts.get(_NOT_REDUCED)
    return Evidence(
        departing=texts.get(_DEPARTING, ""),
        model=model.lines,
        operator=model.operator,
        bundle=_BUNDLE,
        reduced=texts.get(_REDUCED, ""),
        checked=texts.get(_CHECKED, ""),
        notes=(f"The bundle has the whole model. {_NOT_REDUCED}{whole}",) if whole else (),
    )


def _reason(error: Exception) -> str:
    """Return an error in a line; an unexpected one has its class in front."""
    missing = missing_extra(error) if isinstance(error, ImportError) else None
    if missing:
        return missing
    first = next(iter(str(error).splitlines()), "")
    return first if isinstance(error, MlmsError) else f"{type(error).__name__}: {first}"
