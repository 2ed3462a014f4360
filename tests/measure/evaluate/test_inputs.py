"""Tests of the inputs that models are evaluated with."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from mlms_predictors import Tensor

from pytest_mlms.core.errors import OutputError
from pytest_mlms.manifest import load
from pytest_mlms.measure.evaluate.inputs import Inputs, random_batch
from tests.support.small_manifest import small, write


def predictor(*shape: int | None) -> Any:
    return SimpleNamespace(inputs=(Tensor("x", "float32", shape),))


def case_of(folder: Path, **fields: Any) -> Any:
    """Return a case of the small manifest, with a batch of 5."""
    spec = {"name": "x", "type": "tensor", "element_type": "float32", **fields}
    loaded = load(write(folder, small(inputs=[spec])))
    return SimpleNamespace(loaded=loaded, batch_size=5, inputs=loaded.manifest.inputs)


def test_a_random_batch_has_the_shape_and_type_of_the_models_input(tmp_path: Path) -> None:
    batch = random_batch(predictor(None, 3), case_of(tmp_path))
    assert batch["x"].shape == (5, 3)
    assert batch["x"].dtype == np.float32


def test_a_free_axis_is_an_error_with_the_inputs_line(tmp_path: Path) -> None:
    message = r"m\.yaml:\d+: input 'x' has free axes, \(None, None\); add 'shape: \[batch, \?\]'"
    with pytest.raises(OutputError, match=message):
        random_batch(predictor(None, None), case_of(tmp_path))
    batch = random_batch(predictor(None, None), case_of(tmp_path, shape=[2, "batch"]))
    assert batch["x"].shape == (2, 5)


def test_random_inputs_are_one_batch_without_labels() -> None:
    drawn = {"x": np.arange(6.0).reshape(2, 3)}
    found = Inputs(None, drawn, batch_size=2)
    assert len(found) == 2
    assert list(found.batches()) == [drawn]
    assert found.label(0) is None


def test_a_single_input_is_repeated_along_the_axis_of_the_batch() -> None:
    drawn = {"x": np.arange(6.0).reshape(3, 2), "rate": np.array(16000)}
    batch = Inputs(None, drawn, 2, {"x": 1, "rate": None}).repeated(1)
    assert batch["x"].tolist() == [[1, 1], [3, 3], [5, 5]]
    assert batch["rate"] == 16000


def test_a_single_input_is_repeated_to_a_whole_batch() -> None:
    drawn = {"x": np.arange(6.0).reshape(2, 3)}
    batch = Inputs(None, drawn, batch_size=2).repeated(1)
    assert batch["x"].tolist() == [[3.0, 4.0, 5.0]] * 2
