"""Tests of outputs as rows, one an input."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mlms_predictors import Tensor

from pytest_mlms.core.errors import MlmsError, OutputError
from pytest_mlms.manifest.schema import Output
from pytest_mlms.measure.agent.process import Array
from pytest_mlms.measure.evaluate.inputs import Inputs
from pytest_mlms.measure.evaluate.rows import predict_all, predict_rows

Axes = tuple[int | None, ...]

Y = Output.model_validate({"name": "y", "type": "tensor"})


class FakePredictor:
    """A predictor that returns the next of its outputs for each batch."""

    def __init__(
        self, outputs: Iterable[Any], shape: Axes = (), input_shape: Axes = (None, 3)
    ) -> None:
        self._outputs = iter(outputs)
        self.inputs = (Tensor("x", "float32", input_shape),)
        self.outputs = (Tensor("y", "float32", shape),)

    def predict(self, batch: Mapping[str, Array]) -> dict[str, Array]:
        return {"y": np.asarray(next(self._outputs), np.float32)}


BATCH = {"x": np.zeros((2, 3), np.float32)}


def test_outputs_of_random_inputs_are_kept_row_by_row() -> None:
    predictor: Any = FakePredictor([[[1, 2], [3, 4]]])
    outputs = predict_all(predictor, Inputs(None, BATCH, 2), [Y])
    assert outputs["y"].tolist() == [[1, 2], [3, 4]]


def test_outputs_without_elements_are_kept_too() -> None:
    predictor: Any = FakePredictor([np.zeros((2, 0))])
    outputs = predict_all(predictor, Inputs(None, BATCH, 2), [Y])
    assert outputs["y"].shape == (2, 0)


@pytest.mark.parametrize("output", [3.0, [1.0]])
def test_an_output_without_a_row_for_each_input_is_an_error(output: Any) -> None:
    predictor: Any = FakePredictor([output])
    with pytest.raises(OutputError, match="without a row an input; say with 'shape:"):
        predict_all(predictor, Inputs(None, BATCH, 2), [Y])


def test_an_output_whose_shape_changes_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Inputs, "batches", lambda self: [BATCH, BATCH])
    predictor: Any = FakePredictor([np.zeros((2, 3)), np.zeros((2, 4))])
    with pytest.raises(OutputError, match=r"is \(4,\) for some inputs and \(3,\) for others"):
        predict_all(predictor, Inputs(None, BATCH, 2), [Y])


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    predictor: Any = FakePredictor(itertools.repeat(np.zeros((2, 3))))
    message = "can't be kept in .*: No space left on device; set TMPDIR"
    with Path("/dev/full").open("wb", buffering=0) as full:
        monkeypatch.setattr("tempfile.TemporaryFile", lambda: full)
        with pytest.raises(MlmsError, match=message):
            predict_all(predictor, Inputs(None, BATCH, 2), [Y])


TWO_BY_BATCH = np.arange(18.0).reshape(2, 3, 3)
THREE = {"x": np.zeros((3, 3), np.float32)}


def test_the_batch_is_on_the_axis_that_the_manifest_names() -> None:
    output = Output.model_validate({"name": "y", "type": "tensor", "shape": [2, "batch", 3]})
    predictor: Any = FakePredictor([TWO_BY_BATCH])
    rows = predict_all(predictor, Inputs(None, THREE, 3), [output])["y"]
    assert rows.tolist() == TWO_BY_BATCH.swapaxes(0, 1).tolist()


def test_the_batch_is_on_the_only_free_axis_of_the_models_output() -> None:
    predictor: Any = FakePredictor([TWO_BY_BATCH[:, :2]], shape=(2, None, 3))
    rows = predict_all(predictor, Inputs(None, BATCH, 2), [Y])["y"]
    assert rows.tolist() == TWO_BY_BATCH[:, :2].swapaxes(0, 1).tolist()


def test_a_free_axis_is_not_the_batch_where_the_models_batch_is_fixed() -> None:
    boxes = TWO_BY_BATCH[:, :2]
    predictor: Any = FakePredictor([boxes], shape=(2, None, 3), input_shape=(2, 3))
    rows = predict_all(predictor, Inputs(None, BATCH, 2), [Y])["y"]
    assert rows.tolist() == boxes.tolist()


def test_a_free_axis_that_has_another_size_is_not_the_batch() -> None:
    predictor: Any = FakePredictor([TWO_BY_BATCH], shape=(1, None, 3))
    rows = predict_all(predictor, Inputs(None, BATCH, 2), [Y])["y"]
    assert rows.tolist() == TWO_BY_BATCH.tolist()


def test_another_shape_than_the_manifests_is_an_error() -> None:
    output = Output.model_validate({"name": "y", "type": "tensor", "shape": [2, "batch", 4]})
    predictor: Any = FakePredictor([TWO_BY_BATCH])
    message = r"is \(2, 3, 3\); correct its shape in the manifest, \[2, batch, 4\]"
    with pytest.raises(OutputError, match=message):
        predict_all(predictor, Inputs(None, THREE, 3), [output])


@pytest.mark.parametrize("objects", [0, 1, 5])
def test_the_objects_of_a_single_input_may_be_without_a_batch(objects: int) -> None:
    output = Output.model_validate({"name": "y", "type": "boxes"})
    boxes = np.ones((objects, 4), np.float32)
    predictor: Any = FakePredictor([boxes], shape=(None, 4))
    single = {"x": np.zeros((1, 2), np.float32)}
    (batch,) = predict_rows(predictor, Inputs(None, single, 1), [output])
    assert batch.rows("y").reshape(-1, 4).tolist() == boxes.tolist()
    assert len(batch.rows("y")) == 1
