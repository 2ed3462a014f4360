"""Evidence of a task for labels and outputs that a test writes down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pytest_mlms.core.arrays import Array
from pytest_mlms.core.tasks import facts_of
from pytest_mlms.manifest.schema import Input, Output
from pytest_mlms.measure.evaluate.scoring import task_named
from pytest_mlms.measure.evaluate.tasks.task import Evidence
from pytest_mlms.measure.pipeline import Dataset

__all__ = ["Means", "dataset_of", "evidence_of", "resamples"]

PIXEL = Input.model_validate({"name": "x", "type": "tensor", "element_type": "float32"})


class Means(Evidence):
    """Evidence whose figure is the mean of a number an input."""

    def __init__(self, values: Sequence[float], name: str = "f1_macro") -> None:
        self.values = np.asarray(values, np.float64)
        self.name = name

    def __len__(self) -> int:
        return len(self.values)

    def figures(self, counts: Array) -> Mapping[str, Array]:
        return {self.name: counts @ self.values / counts.sum(axis=1)}

    @property
    def losses(self) -> Array:
        return -self.values

    def columns(self) -> Mapping[str, Sequence[Any]]:
        return {"value": self.values.tolist()}


def dataset_of(labels: Any, count: int = 1) -> Dataset:
    """Return a dataset with these labels, one an element."""
    size = count if labels is None else len(labels)
    return Dataset("m.yaml:9: d.npz", (PIXEL,), {"x": [np.zeros(1)] * size}, labels)


def evidence_of(task: str, labels: Any, values: Any, *steps: Any, batch: int = 2) -> Evidence:
    """Return a task's evidence, given the values of an output, a row for each label."""
    kind = facts_of(task).output_types[0]
    output = Output.model_validate({"name": "y", "type": kind, "steps": list(steps)})
    scorer = task_named(task).scorer([output], dataset_of(labels))
    for first in range(0, len(values), batch):
        rows = np.asarray(values[first : first + batch])
        scorer.add({"y": rows}, range(first, first + len(rows)))
    return scorer.evidence()


def resamples(inputs: int) -> np.ndarray:
    """Return the counts of two samples: all inputs once, and some drawn."""
    drawn = np.random.default_rng(0).integers(inputs, size=inputs)
    return np.array([np.ones(inputs), np.bincount(drawn, minlength=inputs)])
