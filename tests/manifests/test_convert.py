"""The network that a model's ONNX file is, and its conversion by the scripts of manifests/convert."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.support.frameworks import in_its_stack, stack_launch
from tests.support.networks import CONVERTED_IN, convert
from tests.support.project import DIGITS, ROOT

CONVERT = ROOT / "manifests" / "convert"
FRAMEWORKS = ("caffe", "caffe2", "cntk", "jax", "mxnet", "pytorch", "tensorflow", "tflite")
OPTIONS: dict[str, dict[str, Any]] = {"caffe2": {"inputs": "image float32[?,1,8,8]"}}
KINDS = (
    "conv",
    "relu",
    "conv",
    "relu",
    "maxpool",
    "conv",
    "relu",
    "maxpool",
    "flatten",
    "dense",
)
"""The layers of the digits network."""


@pytest.fixture(scope="module")
def network() -> ModuleType:
    spec = importlib.util.spec_from_file_location("network", CONVERT / "network.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["network"] = module  # NamedTuple looks its types up there
    spec.loader.exec_module(module)
    return module


def test_the_digits_network_is_read_layer_by_layer(network: ModuleType) -> None:
    found = network.read_onnx(DIGITS / "digits_cnn.onnx")
    assert tuple(layer.kind for layer in found.layers) == KINDS
    assert (found.input, found.shape, found.output) == ("image", (1, 8, 8), "logits")
    assert found.sizes[0] == (16, 8, 8)
    assert found.sizes[-3:] == [(64, 2, 2), (256,), (10,)]


def test_a_network_comes_back_from_its_file(network: ModuleType, tmp_path: Path) -> None:
    saved = network.read_onnx(DIGITS / "digits_cnn.onnx")
    network.save(saved, tmp_path / "n.npz")
    loaded = network.load(tmp_path / "n.npz")
    assert loaded.sizes == saved.sizes
    for one, other in zip(saved.layers, loaded.layers, strict=True):
        assert one[:5] == other[:5]
        assert (one.weight is None) == (other.weight is None)
        if one.weight is not None:
            assert np.array_equal(one.weight, other.weight)
            assert np.array_equal(one.bias, other.bias)


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        (
            helper.make_node("Sigmoid", ["x"], ["y"], name="s"),
            "Sigmoid 's' is not what a plain CNN has",
        ),
        (helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[2, 2], ceil_mode=1), "ceil_mode"),
        (helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[2, 2], pads=[0, 0, 1, 1]), "pads"),
        (helper.make_node("Conv", ["x", "x"], ["y"], kernel_shape=[2, 2]), "kernel_shape"),
        (
            helper.make_node("Relu", ["z"], ["y"], name="r"),
            "'r' does not take what the node before it gave",
        ),
    ],
)
def test_a_network_that_is_no_plain_cnn_is_refused(
    network: ModuleType, tmp_path: Path, node: onnx.NodeProto, reason: str
) -> None:
    if node.op_type == "Conv":
        node.input[1] = "w"  # without a bias
    shape: list[str | int | None] = ["n", 1, 4, 4]
    source = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)
    weight = helper.make_tensor("w", TensorProto.FLOAT, [1, 1, 2, 2], [1.0, 2.0, 3.0, 4.0])
    graph = helper.make_graph([node], "g", [source], [output], [weight])
    onnx.save(helper.make_model(graph), tmp_path / "m.onnx")
    with pytest.raises(ValueError, match=reason):
        network.read_onnx(tmp_path / "m.onnx")


@pytest.mark.slow
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_conversion_computes_what_onnx_runtime_does(tmp_path: Path, framework: str) -> None:
    converter = stack_launch(CONVERTED_IN.get(framework, framework))
    files = convert(DIGITS / "digits_cnn.onnx", framework, converter, tmp_path)
    runs_in = in_its_stack(framework, tmp_path / "log")
    try:
        runs_in.load_files(files, options=OPTIONS.get(framework))
        runs_in.check()
    finally:
        runs_in.agent.close()
