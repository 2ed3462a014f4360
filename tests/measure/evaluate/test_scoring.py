"""Scoring of a dataset by a manifest: limits on what can't be measured are errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_mlms.core.errors import OutputError
from pytest_mlms.manifest import load
from pytest_mlms.measure.evaluate.scoring import score
from pytest_mlms.measure.pipeline import Dataset
from tests.support.small_manifest import DATASET, small, write

VALUES = np.array([[9.0, 3.0, 1.0], [0.0, 1.0, 5.0]])


@pytest.mark.parametrize("name", ["auc", "average_precision", "ece"])
def test_a_limit_on_a_quantity_of_probabilities_is_an_error_without_them(
    tmp_path: Path, name: str
) -> None:
    bound = "max" if name == "ece" else "min"
    message = f"thresholds: {name} can't be measured: output 'y' has no probabilities; write the"
    for limits in ({name: {bound: 0.5}}, {"upgrade": {name: 0.02}}):
        with pytest.raises(OutputError, match=message):
            scored(tmp_path, thresholds=limits)
        assert name in scored(tmp_path, "softmax", thresholds=limits)
    assert name not in scored(tmp_path, thresholds={"top1": {"min": 0.5}})


def scored(folder: Path, *steps: Any, **changes: Any) -> Any:
    """Return the figures of two inputs by a manifest whose output y has these steps."""
    outputs = [{"name": "y", "type": "classification", "steps": list(steps)}]
    written = write(folder, small(outputs=outputs, dataset=DATASET, **changes))
    manifest = load(written).manifest
    rows: Any = {"x": np.zeros((2, 3))}
    dataset = Dataset("m.yaml:1: d.npz", tuple(manifest.inputs), rows, np.array([0, 1]))
    evidence = score([{"y": VALUES}], manifest, dataset, {})
    return evidence.figures(np.ones((1, 2)))
