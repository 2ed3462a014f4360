"""``mlms repro --replay``: a bundle is run by this installation, and the gate decides."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace as but
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_mlms.cli.arguments import show_step
from pytest_mlms.core.errors import MlmsError
from pytest_mlms.explain.repro.replay.main import (
    AGREED,
    CANNOT_RUN,
    NOT_REPRODUCED,
    REPRODUCED,
    UNDECIDED,
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
    """Return the bundle, whose files are gone, and what was seen."""
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
