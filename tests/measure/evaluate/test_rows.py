"""Outputs of batches as rows, and states that go round."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mlms_predictors import Tensor

from pytest_mlms.core.errors import DatasetError, MlmsError, OutputError
from pytest_mlms.core.records import Place
from pytest_mlms.manifest.schema import Input, Output
from pytest_mlms.measure.agent.process import Array
from pytest_mlms.measure.evaluate.inputs import Inputs
from pytest_mlms.measure.evaluate.rows import predict_all, predict_rows
from pytest_mlms.measure.pipeline import Dataset, open_dataset

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
        values = np.asarray(next(self._outputs))
        return {"y": values if values.dtype.kind == "U" else values.astype(np.float32)}


BATCH = {"x": np.zeros((2, 3), np.float32)}


def test_outputs_of_random_inputs_are_kept_row_by_row() -> None:
    predictor: Any = FakePredictor([[[1, 2], [3, 4]]])
    outputs = predict_all(predictor, Inputs(None, BATCH, 2), [Y])
    assert outputs["y"].tolist() == [[1, 2], [3, 4]]


def test_texts_are_kept_though_the_longest_come_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Inputs, "batches", lambda self: [BATCH, BATCH])
    monkeypatch.setattr(Inputs, "__len__", lambda self: 4)
    predictor: Any = FakePredictor([["a", "b"], ["", "größe"]])
    outputs = predict_all(predictor, Inputs(None, BATCH, 2), [Y])
    assert outputs["y"].tolist() == ["a", "b", "", "größe"]


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


HERE = Place(Path("m.yaml"), 30)


def tensor(name: str, **fields: Any) -> Input:
    whole = {"name": name, "type": "tensor", "element_type": "float32", **fields}
    return Input.model_validate(whole)


X = tensor("x")
STATE = tensor("state", shape=[2, "batch", 1], from_output="stateN", start=100)


class Adder:
    """A model that adds up what it gets: y and stateN are state + x."""

    inputs = (Tensor("x", "float32", (None, 1)), Tensor("state", "float32", (2, None, 1)))
    outputs = (Tensor("y", "float32", (None, 1)), Tensor("stateN", "float32", (2, None, 1)))

    def predict(self, batch: Mapping[str, Array]) -> dict[str, Array]:
        state = batch["state"] + batch["x"]
        return {"y": state[0], "stateN": state}


def numbers(folder: Path, state: Input = STATE, **arrays: Any) -> Dataset:
    path = folder / "d.npz"
    values = {"x": np.arange(1.0, 8)[:, None], **arrays}
    np.savez(path, **values)
    return open_dataset(path, [X, state], HERE, "d.npz")


def sums(dataset: Dataset, size: int, model: Any = None) -> list[float]:
    predictor: Any = model or Adder()
    outputs = predict_all(predictor, Inputs(dataset, {}, size), [Y])
    found: list[float] = outputs["y"][:, 0].tolist()
    return found


def test_the_state_of_a_call_is_that_of_the_call_before(tmp_path: Path) -> None:
    assert sums(numbers(tmp_path), 1) == [101, 103, 106, 110, 115, 121, 128]


def test_rows_of_a_batch_go_on_side_by_side(tmp_path: Path) -> None:
    assert sums(numbers(tmp_path), 3) == [101, 102, 103, 105, 107, 109, 112]


@pytest.mark.parametrize("sequence", [[7, 7, 7, 8, 8, 8, 9], list("aaabbbc")])
def test_a_sequence_begins_at_the_start(tmp_path: Path, sequence: list[Any]) -> None:
    dataset = numbers(tmp_path, sequence=np.array(sequence))
    assert sums(dataset, 1) == [101, 103, 106, 104, 109, 115, 107]


def test_rows_begin_sequences_one_by_one(tmp_path: Path) -> None:
    dataset = numbers(tmp_path, sequence=np.array([1, 2, 1, 3, 1, 3, 4]))
    assert sums(dataset, 2) == [101, 102, 104, 104, 109, 110, 107]


def test_a_table_may_have_sequences(tmp_path: Path) -> None:
    text = "x,sequence,label\n1,a,0\n2,a,0\n3,b,0\n"
    (tmp_path / "labels.csv").write_text(text)
    x = tensor("x", shape=["batch", 1])
    dataset = open_dataset(tmp_path, [x, STATE], HERE)
    assert sums(dataset, 1) == [101, 103, 103]


def test_a_state_without_a_batch_begins_for_all(tmp_path: Path) -> None:
    class Counter:
        inputs = Adder.inputs
        outputs = Adder.outputs

        def predict(self, batch: Mapping[str, Array]) -> dict[str, Array]:
            state = batch["state"] + 1
            return {"y": state + 0 * batch["x"], "stateN": state}

    state = tensor("state", shape=[1], from_output="stateN")
    dataset = numbers(tmp_path, state, sequence=np.array([1, 1, 1, 1, 2, 2, 2]))
    assert sums(dataset, 1, Counter()) == [1, 2, 3, 4, 1, 2, 3]


def test_a_batch_has_the_state_of_the_start(tmp_path: Path) -> None:
    batch = numbers(tmp_path).batch([3, 4])
    assert batch["state"].tolist() == [[[100], [100]], [[100], [100]]]
    assert batch["state"].dtype == np.float32


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"from_output": "hn"},
            "the model has no output 'hn', from_output of input 'state'; write",
        ),
        ({"shape": [1, "batch", 1]}, r"output 'stateN' is \(2, 1, 1\), and its input 'state' is"),
    ],
)
def test_an_output_that_is_no_state_is_an_error(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    class Two(Adder):
        def predict(self, batch: Mapping[str, Array]) -> dict[str, Array]:
            return {"y": batch["x"], "stateN": np.zeros((2, 1, 1), np.float32)}

    fields = {"shape": [2, "batch", 1], "from_output": "stateN", **changes}
    dataset = numbers(tmp_path, tensor("state", **fields))
    with pytest.raises(OutputError, match=message):
        sums(dataset, 1, Two())


def test_sequences_of_another_length_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="has 7 of 'x', 2 of 'sequence'"):
        numbers(tmp_path, sequence=np.array([1, 2]))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"from_output": "h"}, "a state needs its shape; write it, as in 'shape:"),
        ({"start": 1}, "start belongs to a state; write 'from_output: …' beside it"),
        ({"from_output": "h", "shape": [1], "column": "h"}, "a state is a tensor without steps"),
        (
            {"from_output": "h", "shape": [1], "element_type": "uint8", "start": 300},
            "start is outside of uint8",
        ),
    ],
)
def test_an_input_that_is_no_state_is_an_error(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tensor("state", **fields)
