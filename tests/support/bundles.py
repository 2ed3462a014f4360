"""Bundles of a model that needs only numpy and a small package, whose versions differ."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pytest_mlms.repro.bundle import Bundle, BundleSide, Expectation

PREDICTOR = Path(__file__).parent / "predictors" / "matrix.py"
OUTPUTS = Expectation("outputs", "agreement", "REGRESSED", "The outputs differ.", ratio=4.0)


def bundle_of_matrix(folder: Path, **changes: Any) -> Bundle:
    """Return a bundle of a product with a matrix; ``changes`` are other fields of it."""
    graph = folder / "weights of somebody.npy"
    np.save(graph, np.arange(6, dtype=np.float32).reshape(3, 2))
    parts: Mapping[str, Any] = {
        "title": "matrix cpu-b2: outputs differ",
        "predictor": PREDICTOR,
        "files": {"graph": graph},
        "device": "cpu",
        "threads": None,
        "options": {},
        "inputs": {"x": np.ones((2, 3), np.float32)},
        "old": side("1.0"),
        "new": side("2.0"),
        "expected": OUTPUTS,
    }
    return Bundle(**{**parts, **changes})


def side(version: str) -> BundleSide:
    """Return a side with a version of the package ``skewed``."""
    requirements = (f"numpy=={np.__version__}", f"skewed=={version}")
    return BundleSide(f"skewed {version}", "matrix", "3.11.7", requirements)
