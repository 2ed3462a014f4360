"""The parameters of quantized ONNX models, which are those of the model that was quantized."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from pytest_mlms.measure.structure.onnx_structure import describe_onnx

quantization: Any = pytest.importorskip("onnxruntime.quantization")

FILTERS = 8
CLASSES = 10
WEIGHTS = {
    "kernel": (FILTERS, 3, 3, 3),
    "kernel_bias": (FILTERS,),
    "matrix": (FILTERS * 6 * 6, CLASSES),
    "matrix_bias": (CLASSES,),
}
PARAMETERS = FILTERS * 27 + FILTERS + FILTERS * 36 * CLASSES + CLASSES


@pytest.fixture(scope="module")
def floats(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A convolution and a matrix product, each with a bias."""
    generator = np.random.default_rng(0)
    weights = []
    for name, shape in WEIGHTS.items():
        values = generator.normal(size=shape).astype(np.float32)
        weights.append(numpy_helper.from_array(values, name))
    nodes = [
        helper.make_node("Conv", ["x", "kernel", "kernel_bias"], ["c"], name="conv"),
        helper.make_node("Flatten", ["c"], ["f"], name="flatten"),
        helper.make_node("Gemm", ["f", "matrix", "matrix_bias"], ["y"], name="gemm"),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 8])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, CLASSES])
    graph = helper.make_graph(nodes, "g", [x], [y], weights)
    path = tmp_path_factory.mktemp("models") / "floats.onnx"
    opset = helper.make_opsetid("", 17)
    onnx.save(helper.make_model(graph, opset_imports=[opset], ir_version=8), path)
    return path


class Inputs:
    """Two random inputs to calibrate by."""

    def __init__(self) -> None:
        self._left = self._draw()

    def _draw(self) -> Iterator[dict[str, Any]]:
        generator = np.random.default_rng(1)
        for _ in range(2):
            yield {"x": generator.normal(size=(1, 3, 8, 8)).astype(np.float32)}

    def get_next(self) -> dict[str, Any] | None:
        return next(self._left, None)


@pytest.mark.parametrize("form", ["QDQ", "QOperator"])
@pytest.mark.parametrize("per_channel", [False, True])
def test_static_quantization_leaves_the_number_of_parameters(
    floats: Path, tmp_path: Path, form: str, per_channel: bool
) -> None:
    path = tmp_path / "quantized.onnx"
    quantization.quantize_static(
        floats,
        path,
        Inputs(),
        quant_format=quantization.QuantFormat[form],
        per_channel=per_channel,
    )
    types = {tensor.data_type for tensor in onnx.load(path).graph.initializer}
    assert TensorProto.INT32 in types  # the biases
    cost = describe_onnx(path)
    assert describe_onnx(floats).parameters == PARAMETERS
    assert cost.parameters == PARAMETERS
    by_layer = [layer.parameters for layer in cost.layers if layer.parameters]
    assert by_layer == [FILTERS * 27 + FILTERS, FILTERS * 36 * CLASSES + CLASSES]


def test_dynamic_quantization_leaves_the_number_of_parameters(floats: Path, tmp_path: Path) -> None:
    path = tmp_path / "quantized.onnx"
    quantization.quantize_dynamic(floats, path, per_channel=True)
    assert describe_onnx(path).parameters == PARAMETERS


def test_numbers_that_are_packed_into_bytes_are_counted_one_by_one(tmp_path: Path) -> None:
    packed = numpy_helper.from_array(np.zeros((5, 2, 16), np.uint8), "w")
    scales = numpy_helper.from_array(np.zeros(10, np.float32), "scales")
    node = helper.make_node(
        "MatMulNBits",
        ["x", "w", "scales"],
        ["y"],
        domain="com.microsoft",
        K=64,
        N=5,
        bits=4,
        block_size=32,
    )
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 64])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 5])
    graph = helper.make_graph([node], "g", [x], [y], [packed, scales])
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    path = tmp_path / "packed.onnx"
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=8), path)
    cost = describe_onnx(path)
    assert cost.parameters == 64 * 5
    assert cost.weight_bytes == 5 * 2 * 16 + 10 * 4
