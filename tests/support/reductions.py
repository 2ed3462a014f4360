"""A network, and both sides of a failure, of the predictor whose operators fail as they are told."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np

from pytest_mlms.core.records import Launch
from pytest_mlms.explain.reduce.sides import Side, Sides
from pytest_mlms.explain.repro.bundle import Bundle, BundleSide, Expectation
from tests.support.onnx_models import ModelBuilder
from tests.support.project import ROOT

PREDICTOR = ROOT / "tests/support/predictors/operators.py"
EXPECTED = Expectation("outputs", "agreement", "REGRESSED", "the outputs differ")
ROWS = 3


def deep_network(folder: Path) -> Path:
    """Save a model of 33 nodes, of which one is Tanh, and one a Sigmoid behind an Exp."""
    model = ModelBuilder()
    model.add_input("x", "N", 4)
    last = "x"
    for number in range(10):
        model.add("Neg", last, f"s{number}")
        model.add("Neg", f"s{number}", f"b{number}")
        model.add("Add", f"b{number} {last}", f"a{number}")
        last = f"a{number}"
        if number == 4:
            model.add("Tanh", last, "t")
            model.add("Exp", "t", "e")
            model.add("Sigmoid", "e", "g")
            last = "g"
    model.add_output(last, "N", 4)
    return model.save(folder)


def sides_of(folder: Path, fails: str) -> Sides:
    """Return a side that is fine, and one that fails."""
    return Sides(_side(folder, "old", "nothing"), _side(folder, "new", fails))


def _side(folder: Path, name: str, fails: str) -> Side:
    command = (sys.executable, "-s", "-B")
    launch = Launch(command, {**os.environ, "MLMS_FAILS": fails}, (), ())
    return Side(name, launch, PREDICTOR, folder / f"{name}.log", "cpu")


def bundle_of(graph: Path, expected: Expectation = EXPECTED) -> Bundle:
    """Return a bundle of a model; its sides are what ``sides_of`` runs."""
    inputs = np.random.default_rng(0).normal(size=(ROWS, 4)).astype(np.float32)
    old, new = (BundleSide(name, "operators", "3.11.7", ()) for name in ("old", "new"))
    return Bundle(
        title="deep",
        predictor=PREDICTOR,
        files={"graph": graph},
        device="cpu",
        threads=None,
        options={},
        inputs={"x": inputs},
        old=old,
        new=new,
        expected=expected,
    )
