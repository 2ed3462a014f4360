"""The outputs of a draft are all that a model gives, also those without a row for each input."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_mlms.author.draft.data import recognise_data
from pytest_mlms.author.draft.drafting import draft_manifest
from pytest_mlms.core.errors import MlmsError
from pytest_mlms.manifest import load
from tests.author.draft.test_drafting import request
from tests.support.onnx_models import ModelBuilder


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "twins").mkdir()
    return tmp_path


def draft(folder: Path, model: ModelBuilder, said: list[str], **asked: Any) -> Any:
    """Draft a manifest, which is read again."""
    shutil.move(model.save(folder), folder / "m.onnx")
    (folder / "m.yaml").write_text(
        draft_manifest(replace(request("m.onnx", said=said), **asked)).text()
    )
    return load(folder / "m.yaml").manifest


def detector(batch: int | str) -> ModelBuilder:
    """Return a model whose boxes of all inputs follow each other, beside a row for each."""
    model = ModelBuilder()
    model.add_input("x", batch, 4)
    model.add_numbers("boxes_shape", -1, 2)
    model.add("Reshape", "x boxes_shape", "boxes")
    model.add("Relu", "x", "features")
    model.add_output("features")
    model.add_output("boxes")
    return model


@pytest.mark.parametrize("batch", [1, "batch"])
def test_an_output_without_a_row_for_each_input_is_compared_at_one_input(
    folder: Path, batch: int | str
) -> None:
    said: list[str] = []
    manifest = draft(folder, detector(batch), said)
    features, boxes = manifest.outputs
    assert (features.name, features.batch, boxes.name, boxes.batch) == (
        *("features", None),
        *("boxes", "none"),
    )
    assert manifest.evaluate.batch_sizes == [1]
    line = "  has no row for each input in boxes: measured with one input a call"
    assert (line in said) == (batch == "batch")


def test_outputs_that_no_label_is_for_are_compared_too(folder: Path) -> None:
    model = ModelBuilder()
    model.add_input("x", "batch", 4)
    model.add("ReduceMean", "x", "y", axes=[1])
    model.add("Relu", "x", "hidden")
    model.add("ReduceMean", "x", "mean", axes=[0, 1])
    for name in ("y", "hidden", "mean"):
        model.add_output(name)
    np.savez("data.npz", x=np.eye(4, dtype=np.float32), label=np.full(4, 0.25, np.float32))
    manifest = draft(folder, model, [], data=recognise_data(Path("data.npz")))
    assert manifest.task == "regression"
    assert [output.name for output in manifest.outputs] == ["y", "hidden", "mean"]


def test_a_model_that_refuses_batches_is_said_to(folder: Path) -> None:
    model = ModelBuilder()
    model.add_input("x", "batch", 4)
    model.add_numbers("one", 1, 4)
    model.add("Reshape", "x one", "y")
    model.add_output("y")
    said: list[str] = []
    assert draft(folder, model, said).evaluate.batch_sizes == [1]
    line = "  refuses batches, which its free axes allow: measured with one input a call"
    assert line in said


def test_rows_of_other_sizes_than_the_user_says_are_refused(folder: Path) -> None:
    model = ModelBuilder()
    model.add_input("x", "batch", "seq")
    model.add("Relu", "x", "y")
    model.add_output("y")
    np.savez("data.npz", x=np.eye(4, dtype=np.float32), label=np.eye(4, dtype=np.float32))
    asked = {"data": recognise_data(Path("data.npz")), "shapes": {"x": ("batch", 5)}}
    message = "data.npz has rows of 4 for 'x', and the model takes 5, or --shape says so; give"
    with pytest.raises(MlmsError, match=message):
        draft(folder, model, [], **asked)
    asked["shapes"] = {"x": ("batch", 4)}
    assert draft(folder, model, [], **asked).inputs[0].shape is None


def test_a_picture_whose_output_has_no_batch_keeps_the_sides_that_were_guessed_or_said(
    folder: Path,
) -> None:
    model = ModelBuilder()
    model.add_input("image", "batch", 3, "height", "width")
    model.add("ReduceMean", "image", "score", keepdims=0)
    model.add_output("score")
    assert draft(folder, model, []).inputs[0].shape == (1, 3, 224, 224)
    shapes = {"image": ("batch", 3, 64, 48)}
    assert draft(folder, model, [], shapes=shapes).inputs[0].shape == (1, 3, 64, 48)


def test_an_axis_that_was_taken_for_the_batch_is_not_said_to_be_where_it_is_none(
    folder: Path,
) -> None:
    model = ModelBuilder()
    model.add_input("x", 2, 3, 4)
    model.add("ReduceMean", "x", "y", axes=[0], keepdims=0)
    model.add_output("y", 3, 4)
    manifest = draft(folder, model, [])
    assert (manifest.inputs[0].shape, manifest.outputs[0].batch) == ((2, 3, 4), "none")
    assert "taken for the batch" not in (folder / "m.yaml").read_text()
