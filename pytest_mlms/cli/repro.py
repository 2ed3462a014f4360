"""``mlms repro``: a zip that replays a failure of a run elsewhere."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import replace as but
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_mlms.cli.arguments import (
    add_making,
    check_output,
    making_of,
    print_error,
    show_step,
)
from pytest_mlms.core.errors import MlmsError
from pytest_mlms.explain.repro.replay.main import (
    AGREED,
    CANNOT_RUN,
    NOT_REPRODUCED,
    REPRODUCED,
    UNDECIDED,
    add_sides,
    agrees,
    chosen_sides,
)

if TYPE_CHECKING:
    from pytest_mlms.decide.upgrade.rounds import SideName
    from pytest_mlms.explain.repro.bundle import Bundle, BundleSide
    from pytest_mlms.explain.repro.verdict import Seen


def replay(options: argparse.Namespace) -> int:
    """Replay a bundle once a person agreed; return the status of ``python repro.zip``.

    Nothing of it runs but its packages and its model.
    """
    import pytest_mlms.core.lifeline  # noqa: F401  it ends with python repro.zip

    path = Path(options.replay)
    told = os.environ.get(AGREED, "")
    is_agreed = bool(told)  # python repro.zip has told it
    sides = _planned(path, options, is_told=is_agreed)
    sys.stdout.flush()
    if not (options.yes or is_agreed or agrees()):
        return CANNOT_RUN
    bundle, seen = _run(path, sides, options)
    if told:
        Path(told).touch()
    print(f"\nexpected: {bundle.expected.summary}")
    print(f"seen:     {seen.summary}")
    for line in seen.details:
        print(f"  {line}")
    if seen.undecided:
        print("UNDECIDED: neither of both is shown; run it again where nothing else runs")
        return UNDECIDED
    words = ("REPRODUCED", "NOT REPRODUCED")
    if bundle.old is not None and len(sides) == 1:
        words = ("AS EXPECTED", "NOT AS EXPECTED")
    print(words[0] if seen.shows else words[1])
    return REPRODUCED if seen.shows else NOT_REPRODUCED


def _planned(path: Path, options: argparse.Namespace, is_told: bool) -> Mapping[str, BundleSide]:
    """Return the sides to run by name, and say what will be done, unless that is known."""
    from pytest_mlms.explain.repro.archive import opened_bundle
    from pytest_mlms.explain.repro.replay.environments import CannotRun, find_pip
    from pytest_mlms.explain.repro.replay.plan import Plan, plan_lines

    with opened_bundle(path) as packed:
        try:
            sides = chosen_sides(packed.record, options.side)
        except CannotRun as error:
            raise MlmsError(f"{path}: {error}") from None
        if options.python:
            sides = {name: side._replace(python=options.python) for name, side in sides.items()}
        if not is_told:
            for line in plan_lines(Plan(packed.record, sides, find_pip().source, packed.sizes)):
                print(line)
    return sides


def _run(
    path: Path, sides: Mapping[str, BundleSide], options: argparse.Namespace
) -> tuple[Bundle, Seen]:
    """Return the bundle, whose files are gone, and the findings."""
    from pytest_mlms.explain.repro.archive import read_bundle
    from pytest_mlms.explain.repro.check import own_predictor, shows
    from pytest_mlms.explain.repro.replay.plan import NEW, OLD

    with tempfile.TemporaryDirectory(prefix="mlms-repro-") as folder:
        bundle = read_bundle(path, Path(folder))
        bundle = but(
            bundle,
            predictor=own_predictor(bundle, options.predictors),
            old=sides.get(OLD, bundle.old),
            new=sides.get(NEW, bundle.new),
        )
        alone: SideName | None = None
        if bundle.old is not None and len(sides) == 1:
            alone = "a" if OLD in sides else "b"
        return bundle, shows(bundle, options.cache, show_step, _tell, alone)


def _tell(line: str) -> None:
    print(line, flush=True)


_LONGEST_NAME = 80  # characters
_MEBIBYTE = 1 << 20


def add_repro(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "repro",
        help="make a zip that replays a failure elsewhere, with just Python and pip",
        description="Exit status: 0 made, 1 the failure doesn't show, 2 it can't be made.",
    )
    parser.add_argument(
        "item",
        nargs="?",
        metavar="ITEM|RUN::NODEID",
        help="an item of the last run, or of a run's folder or name; a part of its id will do",
    )
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="the zip to write (default: repro-ITEM.zip)"
    )
    parser.add_argument(
        "--without-model",
        action="store_true",
        help="random weights instead of the model's; checks that the failure still shows",
    )
    parser.add_argument(
        "--replay", metavar="FILE", help="replay a bundle by this installation's own code instead"
    )
    parser.add_argument("--yes", action="store_true", help="of --replay: don't ask")
    add_sides(parser)
    parser.add_argument(
        "--check", action="store_true", help="replay it in both stacks here before it is written"
    )
    parser.add_argument(
        "--force",
        action="store_true",
        help="overwrite FILE, and write what doesn't show it or names this machine",
    )
    add_making(parser)
    parser.set_defaults(run=_repro)


def _repro(options: argparse.Namespace) -> int:
    """Make or replay a bundle; return the status that the help tells."""
    if options.replay:
        from pytest_mlms.cli.repro import replay

        return replay(options)
    if not options.item:
        raise MlmsError("name an item, as in 'mlms repro manifest.yaml::test_upgrade[…]'")
    from pytest_mlms.explain.repro.items import find_item
    from pytest_mlms.explain.repro.making import bundle_of_item
    from pytest_mlms.explain.repro.privacy import without_places

    found = find_item(options.item, options.results)
    nodeid = found.line["nodeid"]
    plain = re.sub(r"[^\w.=-]+", "-", nodeid.rpartition("::")[2] or nodeid).strip("-")
    path = options.out or Path(f"repro-{plain[:_LONGEST_NAME]}.zip")
    if path.exists() and not options.force:
        raise MlmsError(f"{path} is there; name another with --out, or overwrite it with --force")
    check_output(path, "--out")
    bundle = bundle_of_item(found, making_of(options, options.quantity))
    with tempfile.TemporaryDirectory(prefix="mlms-repro-") as folder:
        if options.without_model:
            from pytest_mlms.explain.repro.random_weights import randomised

            bundle = randomised(bundle, Path(folder))
        bundle = without_places(bundle, Path(folder))
        if not (options.check or options.without_model) or _shows(bundle, options):
            return _write(bundle, path, options)
        if options.force:
            _write(bundle, path, options)
    return 1


def _shows(bundle: Bundle, options: argparse.Namespace) -> bool:
    """Replay a bundle here, and print the outcome; return whether the failure shows."""
    from pytest_mlms.explain.repro.check import shows

    seen = shows(bundle, options.cache, show_step, print_error)
    print(f"checked here: {seen.summary}")
    if seen.shows:
        return True
    subject = "with random weights, the failure" if options.without_model else "the failure"
    problem = "stays undecided" if seen.undecided else "doesn't show"
    print_error(f"{subject} {problem}: nothing is written without --force")
    return False


def _write(bundle: Bundle, path: Path, options: argparse.Namespace) -> int:
    from pytest_mlms.explain.repro.archive import write_bundle

    write_bundle(bundle, path, checked=not options.force)
    print(f"{path}: {path.stat().st_size / _MEBIBYTE:.2f} MiB")
    print(f"  {bundle.title}")
    print(f"  expected: {bundle.expected.summary}")
    for line in _content_lines(bundle, path):
        print(f"  {line}")
    print("run it anywhere with Python 3.10 or later and pip; it says what it will do, and asks:")
    print(f"  python {shlex.quote(str(path))}")
    return 0


def _content_lines(bundle: Bundle, path: Path) -> list[str]:
    with zipfile.ZipFile(path) as archive:
        sizes = {info.filename: info.file_size for info in archive.infolist()}
    model = [f"{name} ({sizes[name]:,} bytes)" for name in sizes if name.startswith("model/")]
    lines = [f"model: {', '.join(model)}"]
    shapes = [f"{name} {array.dtype} {list(array.shape)}" for name, array in bundle.inputs.items()]
    lines.append(f"inputs: {', '.join(shapes)}")
    for side in bundle.sides:
        count = len(side.requirements)
        lines.append(f"side: {side.name}, Python {side.python}, {count} exact packages")
    lines += [f"wheel: {wheel.name}, which comes along" for wheel in bundle.wheels]
    return [*lines, *bundle.notes]
