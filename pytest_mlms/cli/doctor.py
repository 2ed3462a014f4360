"""``mlms doctor``: usual mistakes of pre-processing, tried over a sample of a dataset."""

from __future__ import annotations

import argparse
import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pytest_mlms.author.doctor.comparison import Finding
from pytest_mlms.author.doctor.examination import Examination, open_patient
from pytest_mlms.author.doctor.search import Diagnosis, diagnose
from pytest_mlms.author.doctor.variants import step_lines
from pytest_mlms.author.loading import load_manifest
from pytest_mlms.cli.arguments import (
    add_opening,
    positive,
    print_error,
    show_step,
)
from pytest_mlms.core.errors import MlmsError, StackError
from pytest_mlms.core.quantities import Quantity
from pytest_mlms.core.text import visible
from pytest_mlms.core.units import format_quantity
from pytest_mlms.manifest.load import find_manifests, shown
from pytest_mlms.measure.agent.registry import find_predictors
from pytest_mlms.project import project_stacks
from pytest_mlms.provide.stacks.declared import choose, stacks_for
from pytest_mlms.show.report.table import format_table

_INPUTS = 200
_SHOWN = 10  # variants
_WIDTH = 80  # columns of output that is not a terminal
_CLEAR_LINE = "\r\x1b[K"


def add_doctor(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "doctor", help="try usual mistakes of pre-processing, and say which change scores better"
    )
    parser.add_argument("manifest", type=Path, metavar="MANIFEST", help="a manifest with a dataset")
    parser.add_argument(
        "--inputs",
        type=positive,
        default=_INPUTS,
        metavar="N",
        help=f"inputs of the dataset to try it on, drawn with a fixed seed (default: {_INPUTS})",
    )
    parser.add_argument(
        "--all", action="store_true", help=f"show all variants, not the best {_SHOWN}"
    )
    parser.add_argument(
        "--mlms-stack",
        metavar="STACK",
        dest="stack",
        help="stack that runs the model, as of pytest",
    )
    add_opening(parser)
    parser.set_defaults(run=_doctor)


def _doctor(options: argparse.Namespace) -> int:
    """Print the scores of the variants; return 1 where one is surely better than as written."""
    if not options.manifest.is_file():
        raise MlmsError(f"there is no manifest {options.manifest}; name a .yaml file")
    (options.manifest,) = find_manifests([options.manifest])
    with open_patient(_examination(options)) as patient:
        if not any(spec.type == "image" for spec in patient.manifest.inputs):
            print_error("no input is an image: only the numbers of labels are tried")
        progress = _Progress()
        diagnosis = diagnose(patient, progress.say)
        progress.end()
    lines = list(_report(diagnosis, shown(options.manifest), options.all))
    print(visible("\n".join(lines)))
    return 0 if diagnosis.best is None else 1


def _examination(options: argparse.Namespace) -> Examination:
    """Return the subject: the first model that the stack, or this interpreter, runs."""
    predictors = find_predictors(options.predictors)
    loaded = load_manifest(options.manifest, predictors, options.allow_code)
    declared = project_stacks([options.manifest])
    chosen = choose([options.stack] if options.stack else [], declared, predictors)
    models = loaded.manifest.models
    offered = {model.name for model in models}
    for model in models:
        for stack in stacks_for(model.name, chosen, offered):
            return Examination(
                loaded=loaded,
                model=model,
                stack=stack,
                inputs=options.inputs,
                predictors=predictors,
                cache=options.cache,
                allow_code=options.allow_code,
                show=show_step,
                note=print_error,
            )
    names = ", ".join(sorted(offered))
    raise StackError(f"--mlms-stack {options.stack}: no model is for it, but for {names}")


class _Progress:
    """A line of a terminal that names the current trial; nothing without a terminal."""

    def __init__(self) -> None:
        self._is_shown = sys.stderr.isatty()
        self._count = 0

    def say(self, text: str) -> None:
        self._count += 1
        if self._is_shown:
            width = shutil.get_terminal_size().columns - 1
            line = f"{self._count}: {text}"[:width]
            print(f"{_CLEAR_LINE}{line}", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        if self._is_shown:
            print(_CLEAR_LINE, end="", file=sys.stderr, flush=True)


def _report(diagnosis: Diagnosis, path: Path, shows_all: bool) -> Iterator[str]:
    """Yield a table of variants, and what to write."""
    quantity = diagnosis.quantity
    tried = len(diagnosis.findings)
    value = _value(diagnosis.as_written, quantity)
    yield f"{path}: {quantity.name} {value} of {diagnosis.inputs} inputs as written; {tried} tried"
    found = list(diagnosis.findings) if shows_all else diagnosis.different[:_SHOWN]
    rows = [_row(finding, quantity) for finding in found]
    header = ("change", quantity.name, "better by", "95 % interval")
    width = shutil.get_terminal_size((_WIDTH, 0)).columns
    if rows:
        for row in format_table(header, rows, width, 1):
            yield from row
    same = []
    for finding in diagnosis.findings:
        if finding.low == finding.high == 0 and len(finding.variant.changes) == 1:
            same.append(finding.variant.name)
    yield from _listed("no difference", same, width)
    yield from _listed("could not run", diagnosis.failed, width)
    yield from _advice(diagnosis, path)


def _listed(title: str, names: Sequence[str], width: int) -> Iterator[str]:
    if names:
        yield from textwrap.wrap(f"{title}: {'; '.join(names)}", width, subsequent_indent="  ")


def _row(finding: Finding, quantity: Quantity) -> list[str]:
    interval = f"{_signed(finding.low, quantity)} to {_signed(finding.high, quantity)}"
    name = f"{finding.variant.name} *" if finding.is_sure else finding.variant.name
    better = _signed(finding.better, quantity)
    return [name, _value(finding.value, quantity), better, interval]


def _advice(diagnosis: Diagnosis, path: Path) -> Iterator[str]:
    """Yield the conclusion from the scores, with the lines to paste."""
    best = diagnosis.best
    if best is None:
        yield f"Nothing that was tried is surely better than {path} as it is written"
        yield "(paired by input; a risk of 5 % for all of them together)."
        return
    quantity = diagnosis.quantity
    better = _signed(best.better, quantity)
    yield f"* surely better, at a risk of 5 % for all of them together. Write into {path}"
    yield f"({best.variant.name}: {better} {quantity.name}):"
    if best.variant.offset:
        yield f"  the labels of the dataset, each {best.variant.offset:+d}"
    for line in step_lines(best.variant):
        yield f"    {line}"


def _value(value: float, quantity: Quantity) -> str:
    return format_quantity(value, quantity.unit) if quantity.unit else f"{value:.4g}"


def _signed(value: float, quantity: Quantity) -> str:
    """Return a difference with its sign; shares differ by points."""
    if quantity.unit == "fraction":
        return f"{100 * value:+.1f}"
    return f"{value:+.3g}"
