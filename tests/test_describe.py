"""What a model costs by its structure: against sums by hand, and against torch's and TensorFlow's own counts."""

from __future__ import annotations

import json
import math
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from frameworks import python_of
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from conftest import DIGITS
from pytest_mlms.cli import main
from pytest_mlms.errors import MlmsError
from pytest_mlms.trace.describe import describe_onnx

DIGITS_ONNX = DIGITS / "digits_cnn.onnx"


def saved(folder: Path, nodes: list[Any], inputs: dict[str, Any], outputs: list[str], **weights: Any) -> Path:
    """Write a graph of these nodes; inputs are the shapes, weights the shapes or arrays."""
    arrays = {n: w if isinstance(w, np.ndarray) else np.zeros(w, np.float32) for n, w in weights.items()}
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )
    path = folder / "m.onnx"
    onnx.save(
        helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", 13), helper.make_opsetid("mine", 1)], ir_version=8
        ),
        path,
    )
    return path


def test_the_digits_network_is_what_its_layers_say() -> None:
    found = describe_onnx(DIGITS_ONNX, 4)
    parameters = (9 * 1 * 16 + 16) + (9 * 16 * 32 + 32) + (9 * 32 * 64 + 64) + (256 * 10 + 10)
    products = 64 * 9 * 1 * 16 + 64 * 9 * 16 * 32 + 16 * 9 * 32 * 64 + 256 * 10
    assert found.parameters == parameters
    assert found.weight_bytes == 4 * parameters
    assert found.flops == 2 * 4 * products
    assert found.layers[0].shape == (4, 16, 8, 8)
    assert found.layers[0].output_bytes == 4 * 4 * 16 * 64
    assert found.layers[0].input_bytes == 4 * 4 * 64
    assert found.layers[-1].name == "linear_9"
    assert found.peak_bytes == 2 * 4 * 4 * 32 * 64  # the second convolution's output and that of its Relu
    assert found.unknown == ()


@given(st.integers(1, 200))
def test_operations_and_activations_grow_with_the_batch_and_weights_do_not(batch: int) -> None:
    one, many = describe_onnx(DIGITS_ONNX), describe_onnx(DIGITS_ONNX, batch)
    assert many.flops == batch * one.flops
    assert many.activation_bytes == batch * one.activation_bytes
    assert many.parameters == one.parameters


@given(
    *[st.integers(1, 4)] * 3,
    st.integers(1, 3),
    st.integers(1, 3),
    st.integers(0, 2),
    st.integers(3, 9),
    st.integers(1, 2),
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
    folder = tmp_path_factory.mktemp("conv")
    shape = (outside * groups, inside, kernel, kernel)
    node = helper.make_node("Conv", ["x", "w"], ["y"], group=groups, pads=[pad] * 4, strides=[stride] * 2)
    path = saved(folder, [node], {"x": ["n", inside * groups, size, size]}, ["y"], w=shape)
    side = (size + 2 * pad - kernel) // stride + 1
    found = describe_onnx(path, batch)
    assert found.layers[0].shape == (batch, outside * groups, side, side)
    assert found.flops == 2 * batch * side * side * math.prod(shape)


def test_matrix_products_transposed_convolutions_and_shared_weights(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Add", ["a", "w"], ["b"]),
        helper.make_node("Gemm", ["b", "b"], ["c"], transA=1),
    ]
    found = describe_onnx(saved(tmp_path, nodes, {"x": [5, 5]}, ["c"], w=(5, 5)))
    assert [layer.flops for layer in found.layers] == [250, 0, 250]
    assert [layer.parameters for layer in found.layers] == [25, 0, 0]
    node = helper.make_node("ConvTranspose", ["x", "w"], ["y"], strides=[2, 2])
    found = describe_onnx(saved(tmp_path, [node], {"x": ["n", 3, 4, 4]}, ["y"], w=(3, 7, 2, 2)))
    assert found.layers[0].shape == (1, 7, 8, 8)
    assert found.flops == 2 * 3 * 16 * 7 * 4


def test_shapes_and_indices_are_no_parameters(tmp_path: Path) -> None:
    node = helper.make_node("Reshape", ["x", "to"], ["y"])
    found = describe_onnx(saved(tmp_path, [node], {"x": ["n", 4, 2]}, ["y"], to=np.array([-1, 8])), 3)
    assert found.parameters == 0
    assert found.layers[0].shape == (3, 8)


def test_what_can_not_be_told_is_said(tmp_path: Path) -> None:
    nodes = [helper.make_node("Own", ["x"], ["y"], domain="mine"), helper.make_node("Relu", ["y"], ["z"])]
    found = describe_onnx(saved(tmp_path, nodes, {"x": [1, 2]}, ["z"]))
    assert found.unknown == ("Own", "Relu")
    assert found.peak_bytes is None
    assert found.flops == 0


def test_a_free_axis_that_is_not_the_batch_is_asked_for(tmp_path: Path) -> None:
    path = saved(tmp_path, [helper.make_node("Relu", ["x"], ["y"])], {"x": ["n", "words"]}, ["y"])
    with pytest.raises(MlmsError, match=r"axis 1 \(words\) of input 'x' is free; say --axis words=SIZE"):
        describe_onnx(path)
    assert describe_onnx(path, 2, {"words": 7}).layers[0].shape == (2, 7)


@pytest.mark.parametrize("data", [b"no model", b""])
def test_a_file_that_is_no_model_is_a_clean_error(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "m.onnx").write_bytes(data)
    with pytest.raises(MlmsError, match="can't be described"):
        describe_onnx(tmp_path / "m.onnx")


def test_the_command_prints_a_table_of_a_manifest_within_100_columns(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["describe", str(DIGITS / "digits.yaml"), "--batch-size", "64"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("digits.yaml, batch of 64")
    assert lines[1].split() == ["layer", "type", "output", "parameters", "FLOPs", "weights", "activations"]
    assert "conv2d_2" in lines[4]
    assert any(line.startswith("in all") and "25.9 k" in line for line in lines)
    assert "at most 1.00 MiB of activations at once" in lines
    assert all(len(line) <= 100 for line in lines[1:])


def test_the_command_prints_json_and_refuses_what_it_can_not_describe(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["describe", "--json", str(DIGITS_ONNX)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["parameters"] == sum(layer["parameters"] for layer in found["layers"])
    assert main(["describe", str(tmp_path / "none.onnx")]) == 2
    assert "can't be described" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["describe", "--axis", "words", str(DIGITS_ONNX)])


TORCH = """
import sys, torch
from torch.utils.flop_counter import FlopCounterMode
model = torch.export.load(sys.argv[1]).module()
with torch.no_grad(), FlopCounterMode(display=False) as counter:
    model(torch.zeros(4, 1, 8, 8))
print(counter.get_total_flops(), sum(p.numel() for p in model.parameters()))
"""

TENSORFLOW = """
import sys, tensorflow as tf
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2
model = tf.saved_model.load(sys.argv[1])
call = tf.function(lambda image: model.signatures["serving_default"](image=image))
graph = convert_variables_to_constants_v2(call.get_concrete_function(tf.TensorSpec([4, 1, 8, 8]))).graph
profiler = tf.compat.v1.profiler
options = dict(profiler.ProfileOptionBuilder.float_operation(), output="none", account_type_regexes=["Conv2D", "MatMul"])
counted = profiler.profile(graph, options=options).total_float_ops
print(counted, sum(tf.size(weights).numpy() for weights in model.signatures["serving_default"].variables))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("framework", "module", "script", "file"),
    [
        ("pytorch", "torch", TORCH, "digits_cnn.pt2"),
        ("tensorflow", "tensorflow", TENSORFLOW, "digits_cnn_savedmodel.zip"),
    ],
)
def test_each_frameworks_own_counter_counts_the_same_operations_and_parameters_of_the_same_network(
    tmp_path: Path, framework: str, module: str, script: str, file: str
) -> None:
    """torch's FlopCounterMode, TensorFlow's profiler and onnx's shape inference, which this package counts by."""
    graph = DIGITS / file
    if graph.suffix == ".zip":
        zipfile.ZipFile(graph).extractall(tmp_path)
        graph = tmp_path
    done = subprocess.run([python_of(framework, module), "-c", script, str(graph)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = describe_onnx(DIGITS_ONNX, 4)
    assert [int(word) for word in done.stdout.splitlines()[-1].split()] == [found.flops, found.parameters]
