"""Checks that a bundle still shows its failure, in stacks of this machine's cache.

They run the replay's own code, with environments that are made once and agents that are kept for
the next bundle with the same sides.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import mlms_predictors

from pytest_mlms.core.arrays import read_arrays, write_arrays
from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.records import Launch as StackLaunch
from pytest_mlms.core.records import Stack
from pytest_mlms.explain.repro.bundle import Array, Bundle, BundleSide
from pytest_mlms.explain.repro.replay.agent import Launch
from pytest_mlms.explain.repro.replay.compare import largest_difference
from pytest_mlms.explain.repro.replay.npz import read_npz
from pytest_mlms.explain.repro.replay.observe import observe
from pytest_mlms.explain.repro.replay.sides import NEW, OLD, Sides
from pytest_mlms.explain.repro.replay.task import CannotRun, Seen, Task
from pytest_mlms.provide.stacks.environments import environments, use
from pytest_mlms.provide.stacks.installers import Show
from pytest_mlms.provide.stacks.interpreters import probe
from pytest_mlms.provide.stacks.launch import prepare

__all__ = ["Checker", "Seen", "launch_of", "open_checker", "shows", "stack_of", "task_of"]

_WORKER = Path(str(mlms_predictors.__file__)).parent / "_run" / "worker.py"
_TIMEOUT = 600.0  # seconds for an answer of an agent
_PLACES = ("--index-url", "--extra-index-url", "--find-links")


def _show_nothing(step: str) -> None:
    pass


@dataclass(frozen=True)
class Checker:
    """Checks bundles with the same sides, predictor and threads as the one it was opened for.

    ``folder`` is a temporary one.
    """

    sides: Sides
    folder: Path
    tell: Callable[[str], None]

    def shows(self, bundle: Bundle, seconds: float = 2.0) -> Seen:
        """Run a bundle on both sides, and return what was seen.

        ``seconds`` are the timed ones of a round. Raises MlmsError where the old side fails.
        """
        task = task_of(bundle, self.folder, seconds)
        try:
            return observe(task, self.sides, self.tell)
        except CannotRun as error:
            raise MlmsError(str(error)) from None


def shows(bundle: Bundle, cache: Path, show: Show = _show_nothing) -> Seen:
    """Run a bundle on both sides once, and return what was seen.

    Their environments are made in ``cache`` if needed. Raises MlmsError where that fails, or where
    the old side does.
    """
    with open_checker(bundle, cache, show) as checker:
        return checker.shows(bundle)


@contextlib.contextmanager
def open_checker(
    bundle: Bundle,
    cache: Path,
    show: Show = _show_nothing,
    tell: Callable[[str], None] = _show_nothing,
) -> Iterator[Checker]:
    """Make the environments of a bundle's sides if needed, and yield a Checker for them.

    ``show`` is called with each step of an installation, ``tell`` with a line for each round.
    Raises MlmsError where an environment can't be made. The agents end with the context.
    """
    with tempfile.TemporaryDirectory(prefix="mlms-repro-") as temporary:
        folder = Path(temporary)
        launches = {}
        for name, side in _named_sides(bundle).items():
            launches[name] = _launch_of(bundle, side, cache, folder / f"{name}.log", show)
        with Sides(launches) as sides:
            yield Checker(sides, folder, tell)


def _named_sides(bundle: Bundle) -> dict[str, BundleSide]:
    sides = {NEW: bundle.new}
    return sides if bundle.old is None else {OLD: bundle.old, **sides}


def _launch_of(bundle: Bundle, side: BundleSide, cache: Path, log: Path, show: Show) -> Launch:
    made = launch_of(bundle, side, cache, show)
    return Launch(
        command=made.command,
        environment=dict(made.env),
        worker=str(_WORKER),
        predictor=str(bundle.predictor),
        log=str(log),
        timeout=_TIMEOUT,
        cores=made.cores,
    )


def launch_of(bundle: Bundle, side: BundleSide, cache: Path, show: Show) -> StackLaunch:
    """Return how to start agents of a side; its environment is made in ``cache`` if needed.

    An environment that has the same packages is used, whatever it was made for. Raises MlmsError.
    """
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


def stack_of(bundle: Bundle, side: BundleSide) -> Stack:
    """Return the stack of a side: its exact packages, and nothing that they would ask for."""
    folders = sorted({wheel.parent.absolute() for wheel in bundle.wheels})
    links = [f"--find-links={folder}" for folder in folders]
    return Stack(
        name=side.name,
        framework=side.framework,
        python=side.python,
        requirements=side.requirements,
        options=(*side.options, *links, "--no-deps"),
        threads=bundle.threads,
        env=side.variables,
    )


def task_of(bundle: Bundle, folder: Path, seconds: float) -> Task:
    """Return the task of a bundle, whose arrays are written to a folder."""
    inputs = folder / "inputs.npz"
    write_arrays(inputs, _contiguous(bundle.inputs))
    reference = None
    if bundle.reference:
        reference = folder / "reference.npz"
        write_arrays(reference, bundle.reference)
    return Task(
        expected=bundle.expected,
        load={
            "files": {role: str(path) for role, path in bundle.files.items()},
            "device": bundle.device,
            "threads": bundle.threads,
            "options": dict(bundle.options),
            "allow_code": False,
        },
        inputs=read_npz(str(inputs)),
        reference=None if reference is None else str(reference),
        work=str(folder),
        compare=_compare,
        seconds=seconds,
    )


def _contiguous(arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Return arrays in C order, which frames have."""
    return {name: array.copy(order="C") for name, array in arrays.items()}


def _compare(ours: str, reference: str, closeness: dict[str, Any]) -> dict[str, Any]:
    return largest_difference(read_arrays(Path(ours)), read_arrays(Path(reference)), closeness)
