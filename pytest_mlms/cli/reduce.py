"""``mlms reduce``: the part of an ONNX model that still shows a failure."""

from __future__ import annotations

import argparse
import shlex
import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_mlms.cli.arguments import (
    add_budget,
    add_making,
    check_output,
    making_of,
    print_error,
    show_step,
)

if TYPE_CHECKING:
    from pytest_mlms.explain.reduce.result import Reduction
    from pytest_mlms.explain.repro.bundle import Bundle
    from pytest_mlms.explain.repro.replay.record import Record

_BUDGET = 600.0  # seconds
_SUFFIX = ".zip"
_MODEL_SUFFIX = ".onnx"
_INPUTS_SUFFIX = ".npz"
_OUT = Path("reduced.zip")
_OUT_OF_CHECK = Path("reduced.onnx")
_MODEL = "model/graph.onnx"


def add_reduce(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "reduce",
        help="find the part of an ONNX model that still shows a failure of an upgrade",
        description="Exit status: 0 written, 1 nothing that was run shows it, 2 usage.",
    )
    parser.add_argument(
        "item",
        metavar="ITEM|RUN::NODEID|REPRO.zip|MODEL.onnx",
        help="an item of the last run, or of another, a bundle of mlms repro, or with --check an "
        "ONNX file",
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help=f"the bundle with the reduced model (default: {_OUT}), or of --check that model and "
        f"its inputs beside it (default: {_OUT_OF_CHECK})",
    )
    parser.add_argument(
        "--check",
        metavar="COMMAND",
        type=_words,
        help="judge each model by a command with {model} and {inputs}: a status other than 0 shows "
        "the failure, and 125 says nothing",
    )
    parser.add_argument(
        "--inputs", type=Path, metavar="FILE.npz", help="the inputs of MODEL.onnx, by their names"
    )
    add_budget(parser, "of the search", _BUDGET)
    parser.add_argument(
        "--yes", action="store_true", help="install the packages of a zip without asking"
    )
    add_making(parser)
    parser.set_defaults(run=_reduce)


def _words(text: str) -> list[str]:
    """Return the words of a command, as a shell would; raises an error of argparse."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no command: {error}") from None
    if not words:
        raise argparse.ArgumentTypeError("it names no command")
    return words


def _reduce(options: argparse.Namespace) -> int:
    """Reduce; return the exit status that the help tells."""
    from pytest_mlms.explain.reduce.judging import check_reducible
    from pytest_mlms.explain.reduce.result import result_lines
    from pytest_mlms.explain.repro.check import own_predictor

    options.out = options.out or (_OUT_OF_CHECK if options.check else _OUT)
    _check_files(options)
    with tempfile.TemporaryDirectory(prefix="mlms-reduce-") as temporary:
        folder = Path(temporary)
        bundle = _bundle(options, folder)
        if not options.check:
            check_reducible(bundle)
        print(f"{bundle.title}: {bundle.expected.summary}", flush=True)
        bundle = replace(bundle, predictor=own_predictor(bundle, options.predictors))
        began = time.monotonic()
        command = options.check or ()
        reduction = search_reduction(bundle, folder, options.budget, options.cache, command)
        print(f"{time.monotonic() - began:.1f} s", flush=True)
        for line in result_lines(reduction):
            print(line, flush=True)
        if reduction.bundle is None:
            return 1
        if options.check:
            _write_model(reduction.bundle, options.out)
            return 0
        if not _is_replayed(reduction.bundle, options):
            return 1
        _write(reduction, options.out, folder)
    return 0


def _check_files(options: argparse.Namespace) -> None:
    """Raise MlmsError where files don't go together, or the result can't be written."""
    from pytest_mlms.core.errors import MlmsError

    is_model = Path(options.item).suffix == _MODEL_SUFFIX
    if is_model and not options.check:
        raise MlmsError(f"{options.item} is a model alone; name what judges it with --check")
    if is_model != bool(options.inputs):
        missing = f"{options.item} has no inputs; name them with --inputs FILE.npz"
        raise MlmsError(missing if is_model else "--inputs are those of a MODEL.onnx; leave it out")
    given = {file.resolve() for file in (Path(options.item), options.inputs) if file}
    out: Path = options.out
    if out.resolve() in given:
        raise MlmsError(f"{out} is what to reduce; name another file with --out")
    beside = out.with_suffix(_INPUTS_SUFFIX)
    if options.check and out == beside:
        raise MlmsError(f"{out} has the suffix of the inputs beside it; name FILE.onnx with --out")
    if options.check and beside.resolve() in given:
        raise MlmsError(f"{beside} would be overwritten; name another file with --out")
    check_output(out, "--out")


def _is_replayed(bundle: Bundle, options: argparse.Namespace) -> bool:
    """Return whether a replay of the smaller bundle shows the failure, too.

    One that can't run here, as this Python is missing, takes nothing from what the search saw; nor
    does one that Ctrl-C ends.
    """
    from pytest_mlms.core.errors import Unavailable
    from pytest_mlms.explain.repro.check import shows

    try:
        seen = shows(bundle, options.cache, show_step)
    except Unavailable as error:
        print_error(f"it is written without a replay: {error}")
        return True
    except KeyboardInterrupt:
        print_error("interrupted: it is written without a replay")
        return True
    print(f"  as a replay sees it: {seen.summary}", flush=True)
    if not seen.shows:
        problem = "stays undecided" if seen.undecided else "doesn't show"
        print_error(f"nothing was written: the model shows it in the search, and it {problem} then")
    return seen.shows


def _bundle(options: argparse.Namespace, folder: Path) -> Bundle:
    """Return the bundle that the argument names: of a zip, a model, or an item of a run."""
    from pytest_mlms.core.errors import MlmsError
    from pytest_mlms.explain.repro.archive import opened_bundle, read_bundle
    from pytest_mlms.explain.repro.items import find_item
    from pytest_mlms.explain.repro.making import bundle_of_item

    path = Path(options.item)
    if path.suffix == _MODEL_SUFFIX:
        return _bundle_of_model(path, options.inputs)
    if path.suffix != _SUFFIX:
        found = find_item(options.item, options.results)
        return bundle_of_item(found, making_of(options, options.quantity))
    if not path.is_file():
        raise MlmsError(f"there is no {path}; make one with mlms repro")
    with opened_bundle(path) as packed:
        _ask(packed.record, options)
    return read_bundle(path, folder / "bundle")


def _bundle_of_model(path: Path, inputs: Path) -> Bundle:
    """Return a bundle of a model that a command judges, with inner outputs made here."""
    import numpy as np

    from pytest_mlms.core.errors import MlmsError
    from pytest_mlms.core.files import DamagedFile, read_arrays
    from pytest_mlms.explain.repro.bundle import Bundle, BundleSide, Expectation

    for file in (path, inputs):
        if not file.is_file():
            raise MlmsError(f"there is no {file}; name one that is there")
    try:
        arrays = read_arrays(inputs)
    except (OSError, DamagedFile) as error:
        raise MlmsError(f"{inputs} can't be read: {error}; write it with numpy.savez") from None
    return Bundle(
        title=path.name,
        predictor=Path("onnxruntime.py"),
        files={"graph": path},
        device="cpu",
        threads=None,
        options={},
        inputs={name: np.asarray(array) for name, array in arrays.items()},
        old=None,
        new=BundleSide("here", "onnxruntime", "", ()),
        expected=Expectation("crash", "command", "", "the command fails"),
    )


def _ask(record: Record, options: argparse.Namespace) -> None:
    """Tell which packages a bundle asks for, which may be anything, and ask; raises MlmsError."""
    from pytest_mlms.core.errors import MlmsError

    print_error(f"{options.item}: {record.title}")
    for side in filter(None, (record.old, record.new)):
        variables = [f"{name}={value}" for name, value in side.variables]
        packages = " ".join([*side.options, *side.requirements, *variables])
        print_error(f"{side.name} is Python {side.python} with {packages}")
    if options.yes:
        return
    try:
        answer = input("install and run them? [y/N] ")
    except EOFError:
        answer = ""
    if answer.strip().lower() not in ("y", "yes"):
        raise MlmsError("nothing was installed; look at the packages, and write --yes")


def search_reduction(
    bundle: Bundle, folder: Path, seconds: float, cache: Path, command: Sequence[str] = ()
) -> Reduction:
    """Search in both stacks of a bundle, below a folder; print each step.

    The words of a ``command`` judge instead of the gate.
    """
    from pytest_mlms.explain.reduce.reduction import ReductionPlan, reduce_bundle
    from pytest_mlms.explain.reduce.result import step_line
    from pytest_mlms.explain.reduce.sides import sides_of

    plan = ReductionPlan(
        folder=folder / "reduced",
        seconds=seconds,
        tell=lambda step: print(step_line(step), flush=True),
        show=lambda text: print(text, flush=True),
        command=command,
    )
    with sides_of(bundle, cache, folder, show_step).closing() as sides:
        return reduce_bundle(bundle, sides, plan)


def _write_model(bundle: Bundle, out: Path) -> None:
    """Write a model and its inputs, and say so."""
    from pytest_mlms.core.errors import MlmsError
    from pytest_mlms.core.files import write_arrays

    inputs = out.with_suffix(_INPUTS_SUFFIX)
    try:
        shutil.copyfile(bundle.files["graph"], out)
        write_arrays(inputs, bundle.inputs)
    except OSError as error:
        problem = f"{error.filename or out} can't be written: {error.strerror or error}"
        raise MlmsError(f"{problem}; name another file with --out") from None
    print(f"{out} still fails the command, with the inputs {inputs}")


def _write(reduction: Reduction, out: Path, folder: Path) -> None:
    """Write the smaller bundle, and say how to use it."""
    from pytest_mlms.explain.reduce.result import departure_text, reduction_text
    from pytest_mlms.explain.repro.archive import write_bundle
    from pytest_mlms.explain.repro.privacy import without_places

    assert reduction.bundle is not None, "there is something to write"
    notes = [f"Reduced to {reduction_text(reduction)}."]
    if reduction.layer is not None:
        notes.append(f"In the whole model, the {departure_text(reduction.layer)}.")
    bundle = without_places(reduction.bundle, folder)
    write_bundle(replace(bundle, notes=(*bundle.notes, *notes)), out)
    file = shlex.quote(str(out))
    print(f"{out} replays it: python {file}")
    print(f"its model alone: unzip -p {file} {_MODEL} > reduced.onnx")
