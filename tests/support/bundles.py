"""Bundles of a model that needs only numpy and a small package, whose versions differ."""

from __future__ import annotations

import platform
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pytest_mlms.core.records import Launch
from pytest_mlms.decide.upgrade.rounds import SideName
from pytest_mlms.explain.repro.bundle import Bundle, BundleSide, Expectation
from pytest_mlms.explain.repro.sides import BundleRun

PYTHON = platform.python_version()
PREDICTOR = Path(__file__).parent / "predictors" / "skewed.py"
OUTPUTS = Expectation("outputs", "agreement", "REGRESSED", "The outputs differ.", ratio=4.0)


def bundle_of_matrix(folder: Path, **changes: Any) -> Bundle:
    """Return a bundle of a product with a matrix; ``changes`` are other fields of it."""
    graph = folder / "weights of somebody.npy"
    np.save(graph, np.arange(6, dtype=np.float32).reshape(3, 2))
    parts: Mapping[str, Any] = {
        "title": "skewed cpu-b2: outputs differ",
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
    return BundleSide(f"skewed {version}", "skewed", PYTHON, requirements)


def launches(folder: Path, **code: str) -> dict[SideName, Launch]:
    """Return launches of both sides in this interpreter, with the code of their package."""
    return {
        "a": _launch(folder / "old", code.get("old", "")),
        "b": _launch(folder / "new", code.get("new", "")),
    }


def _launch(folder: Path, code: str) -> Launch:
    folder.mkdir(exist_ok=True)
    Path(folder, "skewed.py").write_text(f"VERSION = '1.0'\n{code}\n")
    variables = {"PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"}
    return Launch((sys.executable, "-s", "-B"), variables)


def run_of(
    folder: Path, expected: Expectation, code: Mapping[str, str], **changes: Any
) -> BundleRun:
    """Return the run of a bundle with such an expectation, on sides with such code."""
    bundle = bundle_of_matrix(folder, expected=expected, **changes)
    return BundleRun(bundle, launches(folder, **code), folder)
