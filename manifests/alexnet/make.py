"""Make AlexNet as ONNX, with weights drawn from a seed: for measuring speed, which doesn't ask what
they mean.

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

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SEED = 7
SIZE = 227
CLASSES = 1000
CONVOLUTIONS = [  # outputs, kernel, stride, pad, whether it is pooled
    (64, 11, 4, 0, True),
    (192, 5, 1, 2, True),
    (384, 3, 1, 1, False),
    (256, 3, 1, 1, False),
    (256, 3, 1, 1, True),
]
DENSE = [4096, 4096, CLASSES]
FLAT = 256 * 6 * 6


class Chain:
    """Nodes and weights, each node taking what the last one made."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.flow = "image"
        self.random = np.random.default_rng(SEED)

    def add(self, operator: str, output: str, *shape: int, **attributes: object) -> None:
        """Add a node, with weights of ``shape`` and a bias where it has one."""
        inputs = [self.flow]
        if shape:
            scale = np.float32(np.sqrt(2 / np.prod(shape[1:])))
            weight = self.random.standard_normal(shape, np.float32) * scale
            for part, values in (("weight", weight), ("bias", np.zeros(shape[0], np.float32))):
                self.weights.append(numpy_helper.from_array(values, f"{output}_{part}"))
                inputs.append(f"{output}_{part}")
        self.nodes.append(helper.make_node(operator, inputs, [output], name=output, **attributes))
        self.flow = output


def alexnet() -> onnx.ModelProto:
    """Return the network in opset 9, IR 4, with a free batch size.

    What every framework of the field can read.
    """
    chain, channels = Chain(), 3
    for number, (outputs, kernel, stride, pad, pooled) in enumerate(CONVOLUTIONS, start=1):
        sizes = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [pad] * 4}
        chain.add("Conv", f"conv{number}", outputs, channels, kernel, kernel, **sizes)
        chain.add("Relu", f"relu{number}")
        if pooled:
            chain.add("MaxPool", f"pool{number}", kernel_shape=[3, 3], strides=[2, 2])
        channels = outputs
    chain.add("Flatten", "flatten", axis=1)
    inputs = FLAT
    for number, outputs in enumerate(DENSE, start=6):
        last = outputs == CLASSES
        chain.add("Gemm", "logits" if last else f"fc{number}", outputs, inputs, transB=1)
        if not last:
            chain.add("Relu", f"relu{number}")
        inputs = outputs
    graph = helper.make_graph(
        chain.nodes,
        "alexnet",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 3, SIZE, SIZE])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", CLASSES])],
        chain.weights,
    )
    opset = helper.make_opsetid("", 9)
    made = helper.make_model(
        graph, opset_imports=[opset], ir_version=4, producer_name="pytest-mlms"
    )
    onnx.checker.check_model(made, full_check=True)
    return made


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(alexnet(), folder / "alexnet.onnx")
