"""Replays of bundles in stacks of this machine's cache, by predictors that are installed here."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from pytest_mlms.core.errors import MlmsError, Unavailable
from pytest_mlms.core.records import Launch
from pytest_mlms.decide.upgrade.rounds import SideName
from pytest_mlms.explain.repro.bundle import Bundle, BundleSide
from pytest_mlms.explain.repro.sides import BundleRun, stack_of
from pytest_mlms.explain.repro.verdict import Seen, observe, observe_side
from pytest_mlms.measure.agent.registry import find_predictors
from pytest_mlms.provide.stacks.environments import environments, use
from pytest_mlms.provide.stacks.installers import Show
from pytest_mlms.provide.stacks.interpreters import probe
from pytest_mlms.provide.stacks.launch import prepare

_PLACES = ("--index-url", "--extra-index-url", "--find-links")


def _show_nothing(step: str) -> None:
    pass


def shows(
    bundle: Bundle,
    cache: Path,
    show: Show = _show_nothing,
    tell: Callable[[str], None] = _show_nothing,
    side: SideName | None = None,
) -> Seen:
    """Run a bundle on its sides once, or on one of two, and return what was seen.

    Their environments are made in ``cache`` if needed. ``show`` is called with each step of an
    installation, ``tell`` with a line for each round. Raises MlmsError where an environment can't
    be made, and where the old side fails.
    """
    sides: dict[SideName, BundleSide] = {"b": bundle.new}
    if bundle.old is not None:
        sides = {"a": bundle.old, **sides}
    if side is not None:
        sides = {side: sides[side]}
    launches: Mapping[SideName, Launch] = {
        name: launch_of(bundle, software, cache, show) for name, software in sides.items()
    }
    with tempfile.TemporaryDirectory(prefix="mlms-repro-") as folder:
        run = BundleRun(bundle, launches, Path(folder))
        return observe(run, tell) if side is None else observe_side(run, side)


def own_predictor(bundle: Bundle, folders: Iterable[Path]) -> Path:
    """Return the predictor that is installed here, or in these folders, for a bundle's framework.

    The code in a bundle, which a stranger may have written, is thus not run. Raises MlmsError where
    there is none.
    """
    framework = bundle.framework
    known = find_predictors(folders)
    if framework not in known:
        problem = f"no predictor for {framework} is installed here"
        raise MlmsError(f"{problem}; name the folder that has it with --mlms-predictors")
    return known[framework]


def launch_of(bundle: Bundle, side: BundleSide, cache: Path, show: Show) -> Launch:
    """Return how to start agents of a side; its environment is made in ``cache`` if needed.

    Another patch of its Python does where that one isn't here, which is told. Raises MlmsError.
    """

    def show_of_side(step: str) -> None:
        show(f"{side.name}: {step}" if step else step)

    try:
        return _launch_of(bundle, side, cache, show_of_side)
    except Unavailable:
        major, minor, *patch = side.python.split(".")
        if not patch:
            raise
        show_of_side(f"there is no Python {side.python} here, so another {major}.{minor} runs it")
        return _launch_of(bundle, side._replace(python=f"{major}.{minor}"), cache, show_of_side)


def _launch_of(bundle: Bundle, side: BundleSide, cache: Path, show: Show) -> Launch:
    """Use an environment that has the same packages, whatever it was made for, or make one."""
    stack = stack_of(bundle, side)
    made = None if bundle.wheels else _environment_with(side, cache)
    if made is not None:
        stack = replace(stack, interpreter=str(made), python=None, requirements=(), options=())
    return prepare(stack, cache, threads=bundle.threads, show=show)


def _environment_with(side: BundleSide, cache: Path) -> Path | None:
    """Return the interpreter of an environment with exactly the packages of a side, now in use.

    They are from the same places: a package that was built locally may have any version.
    """
    wanted = sorted(side.requirements)
    for made in environments(cache):
        places = [option for option in made.options if option.startswith(_PLACES)]
        is_alike = made.python == side.python and sorted(made.lock) == wanted
        if not (is_alike and sorted(places) == sorted(side.options) and made.runs):
            continue
        if probe(made.interpreter).implementation == "CPython":  # with its lock, as bundles ask
            use(made)
            return made.interpreter
    return None
