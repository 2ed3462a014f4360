"""Modules of PyTorch in an agent of this project, by which its own measures are held."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from pytest_mlms.core.records import Stack
from pytest_mlms.measure.agent.helpers import UncheckedModel, open_unchecked
from pytest_mlms.measure.agent.predictor import Predictor, Turn
from pytest_mlms.provide.stacks.launch import prepare

__all__ = ["Batch", "batch", "opened", "turn"]

ROOT = Path(__file__).resolve().parents[2]
OPTIONS = {"class": "Model", "inputs": "x float32[?,?]", "outputs": "y"}

Batch = Mapping[str, np.ndarray]
"""The arrays of a call by their names."""


@contextlib.contextmanager
def opened(source: str, device: str) -> Iterator[Predictor]:
    """Load the module ``Model`` of a source, with one weight ``w``, in an agent."""
    import torch

    stack = Stack("here", "pytorch", interpreter="current")
    with tempfile.TemporaryDirectory() as name:
        graph, weights = Path(name, "model.py"), Path(name, "state.pt")
        graph.write_text(source)
        torch.save({"w": torch.zeros(1)}, weights)
        model = UncheckedModel(
            stack=stack,
            launch=prepare(stack, Path(name)),
            predictor=ROOT / "predictors" / "pytorch.py",
            files={"graph": graph, "weights": weights},
            log=Path(name, "log"),
            device=device,
            options=OPTIONS,
            allow_code=True,
        )
        with open_unchecked(model) as predictor:
            yield predictor


def batch(rows: int, columns: int) -> Batch:
    """Return an input of this shape, by which a module is told what to do."""
    return {"x": np.zeros((rows, columns), np.float32)}


def turn(predictor: Predictor, inputs: Batch, count: int) -> Turn:
    """Return a turn of some calls after one that doesn't count, as upgrades have them."""
    predictor.bind([inputs])
    return predictor.turn(count, skip=1, memory=True)
