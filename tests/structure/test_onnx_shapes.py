"""Shapes of ONNX tensors, where a model computes the shape of another tensor."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx.helper import make_node

from pytest_mlms.structure.onnx_shapes import known_tensors
from tests.support.onnx_models import make_model, zeros

NUMBERS = {"from": np.array([0]), "to": np.array([1]), "rest": np.array([-1])}
WEIGHTS: dict[str, np.ndarray[Any, Any]] = {**NUMBERS, "w": zeros(24, 3)}

FLATTEN = [
    make_node("Shape", ["x"], ["shape"]),
    make_node("Slice", ["shape", "from", "to"], ["batch"]),
    make_node("Concat", ["batch", "rest"], ["target"], axis=0),
    make_node("Reshape", ["x", "target"], ["flat"]),
    make_node("MatMul", ["flat", "w"], ["y"]),
]
"""A reshape as exporters write it: the batch is cut out of a shape and put beside a number."""


def shape_of(model: onnx.ModelProto, name: str) -> tuple[int | None, ...] | None:
    tensor = known_tensors(model).get(name)
    return tensor.shape if tensor else None


@given(st.integers(1, 64))
def test_a_shape_that_the_model_computes_is_followed(batch: int) -> None:
    model = make_model(FLATTEN, {"x": [batch, 4, 6]}, ["y"], WEIGHTS)
    assert shape_of(model, "flat") == (batch, 24)
    assert shape_of(model, "y") == (batch, 3)


def test_tensors_have_the_names_of_their_types() -> None:
    model = make_model(FLATTEN, {"x": [2, 4, 6]}, ["y"], WEIGHTS)
    tensors = known_tensors(model)
    assert tensors["x"].dtype == "float32"
    assert tensors["shape"].dtype == "int64"
    assert tensors["w"].shape == (24, 3)


def test_a_part_of_a_shape_is_followed() -> None:
    nodes = [
        make_node("Shape", ["x"], ["sizes"], start=1, end=3),
        make_node("ConstantOfShape", ["sizes"], ["y"]),
    ]
    model = make_model(nodes, {"x": [2, 4, 6, 8]}, ["y"])
    model.opset_import[0].version = 15  # where Shape has a start and an end
    assert shape_of(model, "y") == (4, 6)


def test_a_shape_of_random_numbers_is_unknown() -> None:
    nodes = [
        make_node("RandomUniform", [], ["chance"], shape=[1], low=1.0, high=9.0),
        make_node("Cast", ["chance"], ["size"], to=onnx.TensorProto.INT64),
        make_node("ConstantOfShape", ["size"], ["y"]),
    ]
    assert shape_of(make_model(nodes, {"x": [1]}, ["y"]), "y") is None


def test_a_shape_that_depends_on_an_input_is_unknown() -> None:
    nodes = [
        make_node("Cast", ["x"], ["size"], to=onnx.TensorProto.INT64),
        make_node("ConstantOfShape", ["size"], ["y"]),
    ]
    assert shape_of(make_model(nodes, {"x": [1]}, ["y"]), "y") is None


def test_an_operator_that_onnx_does_not_have_leaves_its_output_unknown() -> None:
    nodes = [
        make_node("Own", ["x"], ["a"], domain="mine"),
        make_node("Relu", ["a"], ["b"]),
        make_node("Relu", ["x"], ["c"]),
    ]
    model = make_model(nodes, {"x": [1, 2]}, ["b", "c"])
    assert shape_of(model, "a") is None
    assert shape_of(model, "b") is None
    assert shape_of(model, "c") == (1, 2)


def test_the_two_names_of_onnx_s_own_domain_are_one() -> None:
    relu = make_node("Relu", ["flat"], ["y"], domain="ai.onnx")
    model = make_model([*FLATTEN[:4], relu], {"x": [2, 4, 6]}, ["y"], NUMBERS)
    model.opset_import.append(onnx.helper.make_opsetid("ai.onnx", 13))
    assert shape_of(model, "y") == (2, 24)


def test_a_model_that_does_not_import_its_operators_is_an_error() -> None:
    node = make_node("Own", ["x"], ["y"], domain="not imported")
    with pytest.raises(onnx.shape_inference.InferenceError):
        known_tensors(make_model([node], {"x": [2, 5]}, ["y"]))
