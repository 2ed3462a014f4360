"""Manifests compared with their ONNX files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_mlms.cli.lint_checks import check_models
from pytest_mlms.manifest import load
from tests.support.onnx_models import ModelBuilder
from tests.support.small_manifest import small, write

Shape = list[int | str]


def errors_of(folder: Path, shape: Shape, **changes: Any) -> list[str]:
    """Return the errors of a manifest whose model has the input x of this shape."""
    model = ModelBuilder()
    model.add_input("x", *shape)
    model.add_output("y")
    model.save(folder)
    loaded = load(write(folder, small(**changes)))
    return [str(error) for error in check_models(loaded)]


def tensor(**fields: Any) -> dict[str, Any]:
    return {"inputs": [{"name": "x", "type": "tensor", "element_type": "float32", **fields}]}


def test_free_axes_without_a_dataset_are_found(tmp_path: Path) -> None:
    (error,) = errors_of(tmp_path, ["n", "t"], **tensor())
    assert "input 'x' has free axes, (None, None); add 'shape: [batch, ?]'" in error
    assert errors_of(tmp_path, ["n", "t"], **tensor(shape=["batch", 128])) == []


def test_a_shape_that_the_model_does_not_take_is_found(tmp_path: Path) -> None:
    (error,) = errors_of(tmp_path, [2, "n", 128], **tensor(shape=["batch", 128]))
    assert "make float32 1 x 128, and the model takes float32 2 x any x 128" in error


@pytest.mark.parametrize("sizes", [[8], [1, 8]])
def test_a_batch_size_that_the_model_does_not_take_is_found(
    tmp_path: Path, sizes: list[int]
) -> None:
    evaluate = {"batch_sizes": sizes}
    (error,) = errors_of(tmp_path, [1, 3], evaluate=evaluate)
    assert "input 'x' has 1 rows, and batch_sizes 8; write the model's size there" in error


def test_models_that_are_missing_are_left_to_other_checks(tmp_path: Path) -> None:
    assert list(check_models(load(write(tmp_path, small())))) == []


def output_errors(folder: Path, *shape: int | str, **output: Any) -> list[str]:
    """Return the errors of a manifest whose model has the output y of this shape."""
    model = ModelBuilder()
    model.add_input("x", "n", 3)
    model.add_output("y", *shape)
    model.save(folder)
    spec = {"name": "y", "type": "tensor", **output}
    loaded = load(write(folder, small(outputs=[spec])))
    return [str(error) for error in check_models(loaded)]


def test_a_shape_of_an_output_that_is_not_the_models_is_found(tmp_path: Path) -> None:
    assert output_errors(tmp_path, 2, "n", 128, shape=[2, "batch", 128]) == []
    (error,) = output_errors(tmp_path, 2, "n", 128, shape=[2, "batch", 64])
    assert "output 'y' is (2, None, 128) by the model; correct its shape in the manifest" in error
    (error,) = output_errors(tmp_path, 2, "n", shape=[2, "batch", 64])
    assert "output 'y' is (2, None) by the model" in error


def test_the_classes_of_an_output_may_be_on_any_axis(tmp_path: Path) -> None:
    assert output_errors(tmp_path, 10, "n", type="classification", shape=[10, "batch"]) == []
    (error,) = output_errors(tmp_path, 10, "n", 3, type="classification", shape=[10, "batch", 3])
    assert "output 'y' is (10, None, 3), not inputs x classes" in error


@pytest.mark.parametrize(
    ("shape", "steps", "message"),
    [
        (("n",), ["class_numbers"], ""),
        (("n", 1), ["class_numbers"], ""),
        (("n",), ["threshold"], ""),
        (("n", 1), ["sigmoid", "threshold"], ""),
        (("n", "m"), ["threshold"], ""),
        (("n",), [], "one number an input; write 'steps: [threshold]' where it is the probability"),
        (("n", 1), ["softmax"], "one number an input; write 'steps: [threshold]'"),
        (("n", 2), ["threshold"], "the step 'threshold' takes one number an input; leave it out"),
        (("n", 9), ["class_numbers"], "the step 'class_numbers' takes one number an input; leave"),
        (("n", 3, 3), ["class_numbers"], "not inputs x classes; name another output"),
    ],
)
def test_one_number_an_input_has_a_step_that_says_what_it_is(
    tmp_path: Path, shape: Any, steps: Any, message: str
) -> None:
    errors = output_errors(tmp_path, *shape, type="classification", steps=steps)
    assert len(errors) == bool(message)
    assert message in "".join(errors)


def test_inputs_and_outputs_are_found_by_their_positions(tmp_path: Path) -> None:
    output = {"name": "scores", "position": 0, "type": "classification"}
    renamed = tensor(position=0, shape=["batch", 128])
    renamed["inputs"][0]["name"] = "tokens"
    assert errors_of(tmp_path, ["n", 128], **renamed, outputs=[output]) == []
    output["position"] = 1
    (error,) = errors_of(tmp_path, ["n", 128], **renamed, outputs=[output])
    assert error.endswith("the model has no 1 among its outputs; write one of 0 (y)")
