"""The bundle of ``mlms culprit``: made, reduced and replayed, each as far as it is possible."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_mlms.cli.arguments import print_error, show_step
from pytest_mlms.cli.bundle_making import making_of
from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.extras import INSTALL, missing_extra
from pytest_mlms.core.redaction import anonymous
from pytest_mlms.explain.repro.small_model import SmallModel, small_model

if TYPE_CHECKING:
    from pytest_mlms.explain.bisect.record import Record
    from pytest_mlms.explain.reduce.result import Reduction
    from pytest_mlms.explain.repro.bundle import Bundle
    from pytest_mlms.explain.repro.items import FoundItem

BUNDLE = "repro.zip"

_REDUCED = "Reduced to "
_DEPARTING = "In the whole model: first departing layer: "
_NOT_REDUCED = "Not reduced: "
_CHECKED = "Replayed where it was made: "
"""The beginnings of the bundle's notes on what was done. They tell --resume, too."""


_NOT_SHOWN = "it does not show there"


@dataclass(frozen=True)
class Attachment:
    """A bundle as the report tells it, and what could not be done.

    ``name`` is "" without a bundle, and the other texts where they aren't known. ``model`` has the
    lines of a small model, and ``operator`` is that of a single node.
    """

    name: str = ""
    departing: str = ""
    model: tuple[str, ...] = ()
    operator: str = ""
    reduced: str = ""
    checked: str = ""
    notes: tuple[str, ...] = ()


def attach_bundle(
    found: FoundItem, record: Record, path: Path, options: argparse.Namespace
) -> Attachment:
    """Write the bundle of an upgrade that regressed, with a smaller model if there is one.

    What an earlier search has finished is kept. What can't be done is told, and noted.
    """
    try:
        if not _is_finished(path):
            _make(found, record, path, options)
        return _described(path)
    except Exception as error:  # the bisection took long, and its report must not be lost
        print_error(f"there is no bundle: {_reason(error)}")
        return Attachment(notes=(f"There is no bundle: {_reason(error)}",))


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
        bundle = _checked(_smaller(whole, Path(folder), options), options)
        if _does_not_show(bundle) and bundle.files != whole.files:
            reason = "the smaller model does not show it in a replay"
            bundle = _checked(_noted(whole, f"{_NOT_REDUCED}{reason}"), options)
        write_bundle(bundle, path)


def _smaller(whole: Bundle, folder: Path, options: argparse.Namespace) -> Bundle:
    """Return the bundle with a smaller model, or the whole one with the reason."""
    try:
        reduction = _reduce(whole, folder, options)
    except Exception as error:  # the bundle has the whole model then
        print_error(f"the model is not reduced: {_reason(error)}")
        return _noted(whole, f"{_NOT_REDUCED}{_reason(error)}")
    return _reduced(whole, reduction)


def _reduce(whole: Bundle, folder: Path, options: argparse.Namespace) -> Reduction:
    from pytest_mlms.explain.reduce.judges import check_reducible
    from pytest_mlms.explain.reduce.reduction import ReductionPlan, reduce_bundle
    from pytest_mlms.explain.reduce.stacks import StackSettings, sides_of
    from pytest_mlms.explain.reduce.text import result_lines, step_line

    check_reducible(whole)
    print("reducing the model", flush=True)
    plan = ReductionPlan(
        folder=folder / "reduced",
        seconds=options.reduce_budget,
        tell=lambda step: print(step_line(step), flush=True),
        show=lambda text: print(text, flush=True),
    )
    settings = StackSettings(options.cache, folder, show_step)
    with sides_of(whole, settings).closing() as sides:
        reduction = reduce_bundle(whole, sides, plan)
    for line in result_lines(reduction):
        print(line, flush=True)
    return reduction


def _reduced(whole: Bundle, reduction: Reduction) -> Bundle:
    """Return the bundle of a reduction, with notes on what was found."""
    from pytest_mlms.explain.reduce.text import departure_text, reduction_text

    notes = []
    if reduction.layer is not None:
        notes.append(f"In the whole model: {departure_text(reduction.layer)}")
    if reduction.bundle is None:
        return _noted(whole, *notes, f"{_NOT_REDUCED}{reduction.reason}")
    return _noted(reduction.bundle, *notes, f"{_REDUCED}{reduction_text(reduction)}")


def _checked(bundle: Bundle, options: argparse.Namespace) -> Bundle:
    """Replay a bundle here, and note what was seen."""
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


def _does_not_show(bundle: Bundle) -> bool:
    return bundle.notes[-1].startswith(f"{_CHECKED}{_NOT_SHOWN}")


def _noted(bundle: Bundle, *notes: str) -> Bundle:
    """Return a bundle with more notes, which name nobody's paths."""
    return replace(bundle, notes=(*bundle.notes, *map(anonymous, notes)))


def _described(path: Path) -> Attachment:
    """Return what a bundle and its notes tell."""
    from pytest_mlms.explain.repro.archive import read_bundle

    with tempfile.TemporaryDirectory(prefix="mlms-culprit-") as folder:
        bundle = read_bundle(path, Path(folder))
        texts = _by_beginning(bundle.notes)
        reduced = texts.get(_REDUCED, "")
        model = small_model(bundle) if reduced else SmallModel()
    whole = texts.get(_NOT_REDUCED)
    return Attachment(
        name=BUNDLE,
        departing=texts.get(_DEPARTING, ""),
        model=model.lines,
        operator=model.operator,
        reduced=reduced,
        checked=texts.get(_CHECKED, ""),
        notes=(f"The bundle has the whole model. {_NOT_REDUCED}{whole}",) if whole else (),
    )


def _by_beginning(notes: Iterable[str]) -> dict[str, str]:
    texts = {}
    for note in notes:
        for beginning in (_DEPARTING, _REDUCED, _NOT_REDUCED, _CHECKED):
            if note.startswith(beginning):
                texts[beginning] = note.removeprefix(beginning)
    return texts


def _reason(error: Exception) -> str:
    """Return an error in a line; one that is none of ours with its class."""
    missing = missing_extra(error) if isinstance(error, ImportError) else None
    if missing:
        return missing
    first = next(iter(str(error).splitlines()), "")
    return first if isinstance(error, MlmsError) else f"{type(error).__name__}: {first}"
