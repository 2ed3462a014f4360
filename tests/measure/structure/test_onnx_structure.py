"""The cost of ONNX files, against sums by hand."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlms_predictors import Tensor
from onnx import TensorProto, helper, numpy_helper

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.measure.structure.cost import ModelCost
from pytest_mlms.measure.structure.onnx_operations import operations_of
from pytest_mlms.measure.structure.onnx_structure import describe_onnx
from tests.support.onnx_models import ModelBuilder
from tests.support.project import DIGITS

Shape = tuple[int, ...]


def operations(
    kind: str,
    inputs: Mapping[str, Shape | None],
    output: Shape,
    domain: str = "",
    **attributes: Any,
) -> int | None:
    """Count a node whose inputs have these shapes; an input of shape None is left out."""
    names = [name if shape is not None else "" for name, shape in inputs.items()]
    node = helper.make_node(kind, names, ["y"], domain=domain, **attributes)
    tensors = {"y": Tensor("y", "float32", output)}
    for name, shape in inputs.items():
        if shape is not None:
            tensors[name] = Tensor(name, "float32", shape)
    return operations_of(node, tensors)


def test_a_recurrent_layer_multiplies_by_both_weights_at_each_step() -> None:
    inputs = {"x": (7, 2, 5), "w": (1, 4 * 3, 5), "r": (1, 4 * 3, 3)}
    of_a_step = 2 * (4 * 3 * 5 + 4 * 3 * 3)
    assert operations("LSTM", inputs, (7, 1, 2, 3), hidden_size=3) == 7 * 2 * of_a_step
    both = {"x": (7, 2, 5), "w": (2, 3 * 3, 5), "r": (2, 3 * 3, 3)}
    of_a_step = 2 * 2 * (3 * 3 * 5 + 3 * 3 * 3)
    assert operations("GRU", both, (7, 2, 2, 3), hidden_size=3) == 7 * 2 * of_a_step


def test_a_quantized_convolution_counts_as_the_plain_one() -> None:
    scalar: dict[str, Shape] = {"xs": (), "xz": ()}
    inputs = {"x": (1, 3, 8, 8), **scalar, "w": (4, 3, 3, 3)}
    assert operations("QLinearConv", inputs, (1, 4, 6, 6)) == 2 * 4 * 6 * 6 * 3 * 3 * 3


def test_a_quantized_product_counts_as_the_plain_one() -> None:
    scalar: dict[str, Shape] = {"xs": (), "xz": ()}
    inputs = {"x": (2, 3), **scalar, "w": (3, 5)}
    assert operations("QLinearMatMul", inputs, (2, 5)) == 2 * 2 * 3 * 5
    assert operations("QGemm", inputs, (2, 5), "com.microsoft") == 2 * 2 * 3 * 5


def test_a_product_with_a_weight_in_blocks_counts_as_the_plain_one() -> None:
    inputs = {"x": (2, 7, 64), "w": (5, 2, 16), "scales": (10,)}
    found = operations("MatMulNBits", inputs, (2, 7, 5), "com.microsoft", N=5, K=64)
    assert found == 2 * 2 * 7 * 64 * 5


HEADS = {"q": (2, 4, 7, 16), "k": (2, 4, 9, 16), "v": (2, 4, 9, 8)}
OF_HEADS = 2 * 2 * 4 * 7 * 9 * (16 + 8)


def test_attention_counts_both_products() -> None:
    assert operations("Attention", HEADS, (2, 4, 7, 8)) == OF_HEADS


def test_attention_takes_heads_that_are_packed_into_the_last_axis() -> None:
    inputs = {"q": (2, 7, 64), "k": (2, 9, 64), "v": (2, 9, 32)}
    heads: dict[str, Any] = {"q_num_heads": 4, "kv_num_heads": 4}
    assert operations("Attention", inputs, (2, 7, 32), **heads) == OF_HEADS
    assert operations("Attention", inputs, (2, 7, 32)) is None


def test_attention_counts_the_keys_of_earlier_steps() -> None:
    inputs = {**HEADS, "mask": None, "past": (2, 4, 3, 16), "values": (2, 4, 3, 8)}
    assert operations("Attention", inputs, (2, 4, 7, 8)) == 2 * 2 * 4 * 7 * 12 * (16 + 8)


def test_onnx_runtimes_attention_counts_the_weight_of_queries_keys_and_values() -> None:
    inputs = {"x": (2, 7, 10), "w": (10, 3 * 16), "b": (48,)}
    found = operations("Attention", inputs, (2, 7, 16), "com.microsoft", num_heads=4)
    made = 2 * 2 * 7 * 10 * 48
    assert found == made + 2 * 2 * 7 * 7 * (16 + 16)


def test_multi_head_attention_counts_both_products() -> None:
    inputs = {"q": (2, 7, 64), "k": (2, 9, 64), "v": (2, 9, 32)}
    found = operations("MultiHeadAttention", inputs, (2, 7, 32), "com.microsoft", num_heads=4)
    assert found == OF_HEADS
    packed = {"q": (2, 7, 4, 3, 16)}
    assert operations("MultiHeadAttention", packed, (2, 7, 64), "com.microsoft") is None


@pytest.mark.parametrize(
    ("equation", "left", "right", "expected"),
    [
        ("ij,jk->ik", (2, 3), (3, 5), 2 * 2 * 3 * 5),
        ("ij,jk", (2, 3), (3, 5), 2 * 2 * 3 * 5),
        ("bhid, bhjd -> bhij", (2, 4, 3, 8), (2, 4, 5, 8), 2 * 2 * 4 * 3 * 5 * 8),
        ("...ij,jk->...ik", (7, 2, 3), (3, 5), 2 * 7 * 2 * 3 * 5),
        ("ij,ij->ij", (2, 3), (2, 3), 0),
        ("i,i->", (6,), (6,), 2 * 6),
    ],
)
def test_an_einsum_counts_the_products_behind_its_sums(
    equation: str, left: Shape, right: Shape, expected: int
) -> None:
    output = np.einsum(equation, np.zeros(left), np.zeros(right)).shape
    inputs = {"a": left, "b": right}
    assert operations("Einsum", inputs, output, equation=equation) == expected


def test_an_einsum_of_one_operand_counts_nothing_and_one_of_three_is_unknown() -> None:
    assert operations("Einsum", {"a": (2, 2)}, (2,), equation="ii->i") == 0
    three = {"a": (2, 2), "b": (2, 2), "c": (2, 2)}
    assert operations("Einsum", three, (2, 2), equation="ij,jk,kl->il") is None


@given(st.sampled_from(["LSTM", "QLinearConv", "Einsum", "Attention", "MatMul"]))
def test_a_shape_that_is_not_known_leaves_operations_unknown(kind: str) -> None:
    node = helper.make_node(kind, ["a", "b"], ["y"], equation="ij,jk->ik")
    assert operations_of(node, {}) is None


def test_statistics_of_a_normalization_are_no_parameters(tmp_path: Path) -> None:
    model = ModelBuilder()
    model.add_input("x", 1, 6, 4)
    for name in ("scale", "shift", "mean", "variance"):
        model.add_weight(name, 6)
    model.add("BatchNormalization", "x scale shift mean variance", "y")
    model.add_output("y")
    assert describe_onnx(model.save(tmp_path)).parameters == 6 + 6


def test_operators_of_other_domains_are_unknown() -> None:
    assert operations("MatMul", {"a": (2, 2), "b": (2, 2)}, (2, 2), "mine") is None


def model_with_branches(folder: Path) -> Path:
    """Write a model with an If, each branch of which has weights of its own."""
    branches = {}
    for name, width in (("then", 5), ("else", 3)):
        weight = numpy_helper.from_array(np.zeros((4, width), np.float32), "w")
        product = helper.make_node("MatMul", ["x", "w"], ["p"])
        total = helper.make_node("ReduceSum", ["p"], [f"{name}_y"], keepdims=0)
        output = helper.make_tensor_value_info(f"{name}_y", TensorProto.FLOAT, [])
        branches[f"{name}_branch"] = helper.make_graph(
            [product, total], name, [], [output], [weight]
        )
    graph = helper.make_graph(
        [helper.make_node("If", ["c"], ["y"], **branches)],
        "g",
        [
            helper.make_tensor_value_info("c", TensorProto.BOOL, []),
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 4]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [])],
    )
    path = folder / "if.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return path


def test_weights_inside_of_branches_count_and_their_operations_are_unknown(tmp_path: Path) -> None:
    cost = describe_onnx(model_with_branches(tmp_path))
    (layer,) = cost.layers
    assert layer.parameters == 4 * 5 + 4 * 3
    assert layer.flops is None
    assert "x" in layer.reads
    assert cost.unknown == ("If",)


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
