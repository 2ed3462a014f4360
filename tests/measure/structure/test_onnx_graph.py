"""The cost of ONNX files, against sums by hand."""

from __future__ import annotations

import math
import operator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.measure.structure.cost import ModelCost
from pytest_mlms.measure.structure.onnx_graph import describe_onnx
from tests.support.onnx_models import ModelBuilder
from tests.support.project import DIGITS

DIGITS_ONNX = DIGITS / "digits_cnn.onnx"


@pytest.fixture
def model() -> ModelBuilder:
    """A model with an output y."""
    model = ModelBuilder()
    model.add_output("y")
    return model


def cost_of_model(folder: Path, model: ModelBuilder, batch_size: int = 1) -> ModelCost:
    return describe_onnx(model.save(folder), batch_size)


def test_the_digits_network_costs_what_its_layers_cost() -> None:
    cost = describe_onnx(DIGITS_ONNX, 4)
    weights = [9 * 1 * 16, 9 * 16 * 32, 9 * 32 * 64, 256 * 10]
    biases = [16, 32, 64, 10]
    outputs = [64, 64, 16, 1]  # that each weight has a part in
    parameters = sum(weights) + sum(biases)
    products = sum(map(operator.mul, weights, outputs))
    assert cost.parameters == parameters
    assert cost.weight_bytes == 4 * parameters
    assert cost.flops == 2 * 4 * products
    assert cost.unknown == ()
    assert "onnx" in cost.counter


def test_the_layers_of_the_digits_network_have_their_shapes_and_bytes() -> None:
    cost = describe_onnx(DIGITS_ONNX, 4)
    first = cost.layers[0]
    assert first.shape == (4, 16, 8, 8)
    assert first.input_bytes == 4 * 4 * 64
    assert first.output_bytes == 4 * 4 * 16 * 64
    assert cost.layers[-1].name == "linear_9"
    of_second_convolution_and_its_relu = 2 * 4 * 4 * 32 * 64
    assert cost.peak_bytes == of_second_convolution_and_its_relu


@given(st.integers(1, 200))
def test_operations_and_activations_grow_with_the_batch_and_weights_do_not(batch: int) -> None:
    one = describe_onnx(DIGITS_ONNX)
    many = describe_onnx(DIGITS_ONNX, batch)
    assert many.flops == batch * one.flops
    assert many.activation_bytes == batch * one.activation_bytes
    assert many.parameters == one.parameters


SMALL = st.integers(1, 4)


@given(
    batch=SMALL,
    inside=SMALL,
    outside=SMALL,
    groups=st.integers(1, 3),
    kernel=st.integers(1, 3),
    pad=st.integers(0, 2),
    size=st.integers(3, 9),
    stride=st.integers(1, 2),
)
def test_a_convolution_counts_each_product_of_each_group(
    tmp_path_factory: pytest.TempPathFactory,
    batch: int,
    inside: int,
    outside: int,
    groups: int,
    kernel: int,
    pad: int,
    size: int,
    stride: int,
) -> None:
    channels = outside * groups
    weight = (channels, inside, kernel, kernel)
    model = ModelBuilder()
    model.add_input("x", "n", inside * groups, size, size)
    model.add_weight("w", *weight)
    model.add("Conv", "x w", "y", group=groups, pads=[pad] * 4, strides=[stride] * 2)
    model.add_output("y")
    cost = cost_of_model(tmp_path_factory.mktemp("conv"), model, batch)
    side = (size + 2 * pad - kernel) // stride + 1
    assert cost.layers[0].shape == (batch, channels, side, side)
    products = math.prod(weight) * side * side
    assert cost.flops == 2 * batch * products


def test_matrix_products_are_counted_and_a_shared_weight_once(
    model: ModelBuilder, tmp_path: Path
) -> None:
    model.add_input("x", 5, 5)
    model.add_weight("w", 5, 5)
    model.add("MatMul", "x w", "a")
    model.add("Add", "a w", "b")
    model.add("Gemm", "b b", "y", transA=1)
    layers = cost_of_model(tmp_path, model).layers
    assert [layer.flops for layer in layers] == [250, 0, 250]
    assert [layer.parameters for layer in layers] == [25, 0, 0]


def test_a_transposed_convolution_counts_each_product(model: ModelBuilder, tmp_path: Path) -> None:
    model.add_input("x", "n", 3, 4, 4)
    model.add_weight("w", 3, 7, 2, 2)
    model.add("ConvTranspose", "x w", "y", strides=[2, 2])
    cost = cost_of_model(tmp_path, model)
    inputs = 3 * 4 * 4
    assert cost.layers[0].shape == (1, 7, 8, 8)
    assert cost.flops == 2 * inputs * 7 * 4


def test_a_weight_that_is_a_shape_is_no_parameter(model: ModelBuilder, tmp_path: Path) -> None:
    model.add_input("x", "n", 4, 2)
    model.add_numbers("to", -1, 8)
    model.add("Reshape", "x to", "y")
    cost = cost_of_model(tmp_path, model, 3)
    assert cost.parameters == 0
    assert cost.layers[0].shape == (3, 8)


def test_a_layer_of_another_domain_is_unknown_and_all_after_it(
    model: ModelBuilder, tmp_path: Path
) -> None:
    model.add_input("x", 1, 2)
    model.add("Own", "x", "a", domain="mine")
    model.add("Relu", "a", "y")
    cost = cost_of_model(tmp_path, model)
    assert cost.unknown == ("Own", "Relu")
    assert cost.peak_bytes is None
    assert cost.flops == 0


def test_weights_among_the_inputs_are_weights(model: ModelBuilder, tmp_path: Path) -> None:
    model.add_input("x", "n", 2)
    model.add_input("w", 2)
    model.add_weight("w", 2)
    model.add("Add", "x w", "y")
    cost = cost_of_model(tmp_path, model, 5)
    assert cost.parameters == 2
    assert cost.layers[0].shape == (5, 2)


def test_free_axes_that_are_not_the_batch_need_a_size(model: ModelBuilder, tmp_path: Path) -> None:
    model.add_input("x", "n", "words", None)
    model.add("Relu", "x", "y")
    path = model.save(tmp_path)
    message = r"model\.onnx can't be described: input 'x' has free axes; say --axis words=SIZE"
    with pytest.raises(MlmsError, match=message):
        describe_onnx(path)
    cost = describe_onnx(path, 2, {"words": 7, "x.2": 3})
    assert cost.layers[0].shape == (2, 7, 3)


@pytest.mark.parametrize("data", [b"no model", b""])
def test_a_file_that_is_no_model_is_an_error(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(data)
    with pytest.raises(MlmsError, match="can't be described"):
        describe_onnx(path)


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(MlmsError, match=r"none\.onnx can't be described: .*No such file"):
        describe_onnx(tmp_path / "none.onnx")
