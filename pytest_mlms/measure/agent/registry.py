"""The predictors that there are, found without importing any, and the requests of agents.

docs/agents.md describes the groups of requests. An agent that is a program of its own needs not
have all of them."""

from __future__ import annotations

import importlib.util
from collections.abc import Collection, Iterable, Iterator, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING

import mlms_predictors

from pytest_mlms.core.errors import Unavailable

if TYPE_CHECKING:
    from pytest_mlms.provide.cases import Case


_OURS = Path(str(mlms_predictors.__file__)).parent

ENTRY_POINTS = "mlms_predictors"
"""The group of entry points by which installed packages announce predictors."""


def find_predictors(folders: Iterable[Path] = ()) -> dict[str, Path]:
    """Return the file of each framework's predictor, by the framework's name.

    Later ones replace earlier ones: our own, those that packages install, those in ``folders``.
    Raises Unavailable where an installed package announces a module that isn't there.
    """
    found = _predictors_in(_OURS)
    for point in entry_points(group=ENTRY_POINTS):
        spec = importlib.util.find_spec(point.value)
        if spec is None or spec.origin is None:
            raise Unavailable(
                f"predictor {point.name!r} should be in module {point.value}, which isn't installed"
            )
        found[point.name] = Path(spec.origin)
    for folder in folders:
        found.update(_predictors_in(folder))
    return found


def is_ours(predictor: Path) -> bool:
    """Return whether a predictor's file is one of those that come with this package."""
    return predictor.parent == _OURS


def _predictors_in(folder: Path) -> dict[str, Path]:
    files = sorted(folder.glob("*.py"))
    return {file.stem: file for file in files if not file.stem.startswith("_")}


GROUPS: Mapping[str, tuple[str, ...]] = {
    "use": ("hello", "load", "predict"),
    "performance": ("run", "outputs", "usage"),
    "upgrades": ("bind", "turn", "repeats", "idle", "hold", "move"),
    "loads": ("load_run", "served"),
    "LoadGen": ("loadgen",),
    "traces": ("trace",),
    "layers": ("profile",),
    "inner outputs": ("inner",),
    "structure": ("structure", "peaks"),
    "code of manifests": ("open_code", "preprocess", "postprocess"),
    "pictures": ("decode",),
}
"""The requests of each group; an agent has all of a group or none, and always the first."""


def missing_requests(case: Case, answered: Collection[str] | None) -> list[str]:
    """Return the requests that a case needs and its agent doesn't answer; None: it answers all."""
    if answered is None:
        return []
    needed = [request for group in _groups_of(case) for request in GROUPS[group]]
    return [request for request in needed if request not in answered]


def _groups_of(case: Case) -> Iterator[str]:
    yield "use"
    if case.kind in ("performance", "soak", "trace", "upgrade"):
        yield "performance"
    if case.kind == "upgrade" or (case.kind == "performance" and case.device != "cpu"):
        yield "upgrades"
    if case.load is not None:
        yield "loads"
    if case.kind == "trace":
        yield "traces"
