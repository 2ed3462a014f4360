"""Bundles of a model that needs only numpy and a small package, whose versions differ."""

from __future__ import annotations

import platform
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pytest_mlms.explain.repro.bundle import Bundle, BundleSide, Expectation
from pytest_mlms.explain.repro.check import task_of
from pytest_mlms.explain.repro.replay.agent import Launch
from pytest_mlms.explain.repro.replay.sides import NEW, OLD
from pytest_mlms.explain.repro.replay.task import Task
from tests.support.project import ROOT

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


def launches(folder: Path, **code: str) -> dict[str, Launch]:
    """Return launches of both sides in this interpreter, with the code of their package."""
    return {name: _launch(folder / name, code.get(name, "")) for name in (OLD, NEW)}


def _launch(folder: Path, code: str) -> Launch:
    folder.mkdir(exist_ok=True)
    Path(folder, "skewed.py").write_text(f"VERSION = '1.0'\n{code}\n")
    return Launch(
        command=(sys.executable, "-s", "-B"),
        environment={"PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"},
        worker=str(ROOT / "predictors" / "_run" / "worker.py"),
        predictor=str(PREDICTOR),
        log=str(folder / "agent.log"),
        timeout=60,
    )


def task(folder: Path, expected: Expectation, seconds: float = 0.02, **changes: Any) -> Task:
    """Return the task of a bundle with such an expectation."""
    bundle = bundle_of_matrix(folder, expected=expected, **changes)
    return task_of(bundle, folder, seconds)
