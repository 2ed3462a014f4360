"""Which frameworks there is a predictor for.

A file's name is the registry, and no framework is imported.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable
from importlib.metadata import entry_points
from pathlib import Path

import mlms_predictors

from pytest_mlms.errors import Unavailable

__all__ = ["find_predictors"]

ENTRY_POINTS = "mlms_predictors"


def find_predictors(folders: Iterable[Path] = ()) -> dict[str, Path]:
    """Return framework name -> file: our own, then those of installed packages, then ``folders``;
    the last one wins.

    Raises Unavailable where an installed package announces a module that isn't there.
    """
    found = _files(Path(str(mlms_predictors.__file__)).parent)
    for point in entry_points(group=ENTRY_POINTS):
        spec = importlib.util.find_spec(point.value)
        if spec is None or spec.origin is None:
            raise Unavailable(
                f"predictor {point.name!r} should be in module {point.value}, which isn't installed"
            )
        found[point.name] = Path(spec.origin)
    for folder in folders:
        found.update(_files(folder))
    return found


def _files(folder: Path) -> dict[str, Path]:
    return {
        path.stem: path for path in sorted(folder.glob("*.py")) if not path.stem.startswith("_")
    }
