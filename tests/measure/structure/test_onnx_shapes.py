"""Shapes of ONNX tensors, where a model computes the shape of another tensor."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlms_predictors import Tensor
from onnx import TensorProto

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.measure.structure.onnx_shapes import known_tensors
from pytest_mlms.measure.structure.onnx_structure import read_signature
from tests.support.onnx_models import ModelBuilder
from tests.support.project import DIGITS


def shape_of(model: ModelBuilder, name: str) -> tuple[int | None, ...] | None:
    """Return the shape of a tensor, None where it is unknown."""
    tensor = known_tensors(model.build()).get(name)
    if tensor is None:
        return None
    return tensor.shape


def flattening(batch: int) -> ModelBuilder:
    """Return a model that reshapes x to two axes, as exporters write it.

    The batch is cut out of the shape of x and put beside a number.
    """
    model = ModelBuilder()
    model.add_input("x", batch, 4, 6)
    model.add_numbers("from", 0)
    model.add_numbers("to", 1)
    model.add_numbers("rest", -1)
    model.add("Shape", "x", "shape")
    model.add("Slice", "shape from to", "batch")
    model.add("Concat", "batch rest", "target", axis=0)
    model.add("Reshape", "x target", "flat")
    model.add_output("y")
    return model


@pytest.fixture
def model() -> ModelBuilder:
    """A model with an input x and an output y."""
    model = ModelBuilder(opset=15)
    model.add_input("x", 2, 4, 6, 8)
    model.add_output("y")
    return model


@given(st.integers(1, 64))
def test_a_shape_that_the_model_computes_is_followed(batch: int) -> None:
    model = flattening(batch)
    model.add_weight("w", 24, 3)
    model.add("MatMul", "flat w", "y")
    assert shape_of(model, "flat") == (batch, 24)
    assert shape_of(model, "y") == (batch, 3)


def test_tensors_have_the_names_of_their_types() -> None:
    model = flattening(2)
    model.add("Relu", "flat", "y")
    tensors = known_tensors(model.build())
    assert tensors["x"].dtype == "float32"
    assert tensors["shape"].dtype == "int64"
    assert tensors["rest"].shape == (1,)


def test_a_part_of_a_shape_is_followed(model: ModelBuilder) -> None:
    model.add("Shape", "x", "sizes", start=1, end=3)
    model.add("ConstantOfShape", "sizes", "y")
    assert shape_of(model, "y") == (4, 6)


def test_a_shape_of_random_numbers_is_unknown(model: ModelBuilder) -> None:
    model.add("RandomUniform", "", "chance", shape=[1], low=1.0, high=9.0)
    model.add("Cast", "chance", "size", to=onnx.TensorProto.INT64)
    model.add("ConstantOfShape", "size", "y")
    assert shape_of(model, "y") is None


def test_a_shape_that_depends_on_an_input_is_unknown(model: ModelBuilder) -> None:
    model.add_input("wanted", 1)
    model.add("Cast", "wanted", "size", to=onnx.TensorProto.INT64)
    model.add("ConstantOfShape", "size", "y")
    assert shape_of(model, "y") is None


def test_an_operator_that_onnx_does_not_have_leaves_its_output_unknown(
    model: ModelBuilder,
) -> None:
    model.add("Own", "x", "a", domain="mine")
    model.add("Relu", "a", "b")
    model.add("Relu", "x", "y")
    assert shape_of(model, "a") is None
    assert shape_of(model, "b") is None
    assert shape_of(model, "y") == (2, 4, 6, 8)


def test_the_two_names_of_onnx_s_own_domain_are_one() -> None:
    model = flattening(2)
    model.add("Relu", "flat", "y", domain="ai.onnx")
    model.imports.append(onnx.helper.make_opsetid("ai.onnx", 13))
    assert shape_of(model, "y") == (2, 24)


def test_a_model_that_does_not_import_its_operators_is_an_error(model: ModelBuilder) -> None:
    model.add("Own", "x", "y", domain="not imported")
    with pytest.raises(onnx.shape_inference.InferenceError):
        known_tensors(model.build())


def test_the_shipped_model_has_its_names_types_and_shapes() -> None:
    signature = read_signature(DIGITS / "digits_cnn.onnx")
    assert signature.inputs == [Tensor("image", "float32", (None, 1, 8, 8))]
    assert signature.outputs == [Tensor("logits", "float32", (None, 10))]


def test_weights_among_the_inputs_are_left_out(tmp_path: Path) -> None:
    model = ModelBuilder()
    model.add_input("x", "n", 3)
    model.add_input("w", 3)
    model.add_weight("w", 3)
    model.add("Add", "x w", "y")
    model.add_output("y")
    signature = read_signature(model.save(tmp_path))
    assert signature.inputs == [Tensor("x", "float32", (None, 3))]
    assert signature.outputs == [Tensor("y", "float32", ())]


def test_what_is_no_array_of_numbers_has_another_type(tmp_path: Path) -> None:
    model = ModelBuilder()
    model.add_output("text")
    proto = model.build()
    outputs = proto.graph.output
    outputs[0].type.tensor_type.elem_type = TensorProto.STRING
    maps = outputs.add(name="maps").type.sequence_type.elem_type.map_type
    maps.key_type = TensorProto.INT64
    path = tmp_path / "model.onnx"
    onnx.save(proto, path)
    signature = read_signature(path)
    assert [tensor.dtype for tensor in signature.outputs] == ["string", "sequence"]


def test_a_file_that_is_no_model_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(b"<html>")
    with pytest.raises(MlmsError, match=r"model\.onnx is not an ONNX model"):
        read_signature(path)
