"""The registry of predictors: a file for each framework, found without importing any."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable
from importlib.metadata import entry_points
from pathlib import Path

import mlms_predictors

from pytest_mlms.core.errors import Unavailable

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
