"""Make AlexNet as ONNX, with weights drawn from a seed, to measure speed by.

    pip install onnx numpy
    python manifests/alexnet/make.py FOLDER

The structure is that of Krizhevsky 2014 (https://arxiv.org/abs/1404.5997) on 227 x 227 images: one
tower, without the groups and the local response normalisation of 2012; 61 million parameters, 0.7
billion multiplications an image. There is no padding before the first pooling, so that no pooling
has to round. The weights are normal with the variance 2 over the number of inputs (He and others
2015), so that values neither vanish nor grow from layer to layer.
"""

import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SEED = 7
SIZE = 227
CLASSES = 1000
FLAT = 256 * 6 * 6


class Convolution(NamedTuple):
    """A convolution with square sizes, and whether a pooling follows."""

    outputs: int
    kernel: int
    stride: int
    pad: int
    pooled: bool


CONVOLUTIONS = [
    Convolution(64, 11, 4, 0, True),
    Convolution(192, 5, 1, 2, True),
    Convolution(384, 3, 1, 1, False),
    Convolution(256, 3, 1, 1, False),
    Convolution(256, 3, 1, 1, True),
]
DENSE = {"fc6": 4096, "fc7": 4096, "logits": CLASSES}
"""Outputs of the dense layers, of which the last has no Relu."""


class Chain:
    """Nodes and weights, each node taking what the last one made."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.flow = "image"
        self.random = np.random.default_rng(SEED)

    def add(self, operator: str, output: str, *shape: int, **attributes: Any) -> None:
        """Add a node, with weights of ``shape`` and a bias where it has one."""
        inputs = [self.flow]
        if shape:
            inputs += self._add_weights(output, shape)
        node = helper.make_node(operator, inputs, [output], name=output, **attributes)
        self.nodes.append(node)
        self.flow = output

    def _add_weights(self, output: str, shape: tuple[int, ...]) -> list[str]:
        """Draw weights and return the names of weight and bias."""
        inputs = np.prod(shape[1:])
        scale = np.float32(np.sqrt(2 / inputs))
        weight = self.random.standard_normal(shape, np.float32) * scale
        bias = np.zeros(shape[0], np.float32)
        self.weights.append(numpy_helper.from_array(weight, f"{output}_weight"))
        self.weights.append(numpy_helper.from_array(bias, f"{output}_bias"))
        return [f"{output}_weight", f"{output}_bias"]


def alexnet() -> onnx.ModelProto:
    """Return the network in opset 9, IR 4, which every framework of the field can read.

    The batch size is free.
    """
    chain = Chain()
    _add_convolutions(chain)
    chain.add("Flatten", "flatten", axis=1)
    _add_dense(chain)
    shape: list[str | int | None] = ["batch", 3, SIZE, SIZE]
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, shape)
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", CLASSES])
    made = helper.make_model(
        helper.make_graph(chain.nodes, "alexnet", [image], [logits], chain.weights),
        opset_imports=[helper.make_opsetid("", 9)],
        ir_version=4,
        producer_name="pytest-mlms",
    )
    onnx.checker.check_model(made, full_check=True)
    return made


def _add_convolutions(chain: Chain) -> None:
    channels = 3
    for number, layer in enumerate(CONVOLUTIONS, start=1):
        chain.add(
            "Conv",
            f"conv{number}",
            *(layer.outputs, channels, layer.kernel, layer.kernel),
            kernel_shape=[layer.kernel] * 2,
            strides=[layer.stride] * 2,
            pads=[layer.pad] * 4,
        )
        chain.add("Relu", f"relu{number}")
        if layer.pooled:
            chain.add("MaxPool", f"pool{number}", kernel_shape=[3, 3], strides=[2, 2])
        channels = layer.outputs


def _add_dense(chain: Chain) -> None:
    inputs = FLAT
    for name, outputs in DENSE.items():
        chain.add("Gemm", name, outputs, inputs, transB=1)
        if name != "logits":
            chain.add("Relu", name.replace("fc", "relu"))
        inputs = outputs


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(alexnet(), folder / "alexnet.onnx")
