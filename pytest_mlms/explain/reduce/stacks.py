"""The stacks of a bundle, made again on this machine."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pytest_mlms.core.errors import MlmsError, Unavailable
from pytest_mlms.core.records import Launch
from pytest_mlms.explain.reduce.sides import Side, Sides
from pytest_mlms.explain.repro.bundle import Bundle, BundleSide
from pytest_mlms.explain.repro.check import launch_of
from pytest_mlms.measure.agent.registry import find_predictors
from pytest_mlms.provide.stacks.installers import Show


@dataclass(frozen=True)
class StackSettings:
    """Settings of making stacks.

    ``show`` is called with the steps of an installation, ``timeout`` is the longest wait for a
    reply in seconds, and ``logs`` is the folder of the agents' output.
    """

    cache: Path
    logs: Path
    show: Show
    timeout: float = 300.0


def sides_of(bundle: Bundle, settings: StackSettings) -> Sides:
    """Return both sides of a bundle, with their environments; no agent is started.

    Raises MlmsError for software that can't be had.
    """
    assert bundle.old is not None, "check_reducible comes first"
    old, new = (_side(bundle, side, settings) for side in (bundle.old, bundle.new))
    return Sides(old, new)


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


def _side(bundle: Bundle, side: BundleSide, settings: StackSettings) -> Side:
    return Side(
        name=side.name,
        launch=_launch(bundle, side, settings),
        predictor=bundle.predictor,
        log=settings.logs / f"{side.name}.log",
        device=bundle.device,
        threads=bundle.threads,
        options=bundle.options,
        timeout=settings.timeout,
    )


def _launch(bundle: Bundle, side: BundleSide, settings: StackSettings) -> Launch:
    """Make the environment of a side; of its Python, the minor version where it isn't here."""
    try:
        return launch_of(bundle, side, settings.cache, settings.show)
    except Unavailable:
        major, minor, *_ = side.python.split(".")
        other = side._replace(python=f"{major}.{minor}")
        return launch_of(bundle, other, settings.cache, settings.show)
