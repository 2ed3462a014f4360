"""Small models that show what a release changed, for ci/known_regressions.py.

Each builder writes ``model.onnx`` or ``model.jax``. Weights are drawn with one seed, so that every
run has the same files.
"""

from __future__ import annotations

import io
import subprocess
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = ["JAX_MODELS", "MODELS", "write_jax", "write_onnx", "write_pictures"]

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64

Port = tuple[str, int, Sequence[int | str]]
"""The name, element type and shape of an input or output."""


class Graph:
    """Nodes, constants and ports of a model in the making."""

    def __init__(self, inputs: Sequence[Port], outputs: Sequence[Port]) -> None:
        self.inputs = inputs
        self.outputs = outputs
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self._rng = np.random.default_rng(0)

    def node(self, operator: str, inputs: str, output: str, **attributes: Any) -> str:
        """Add a node; ``inputs`` are names with spaces between them."""
        self.nodes.append(helper.make_node(operator, inputs.split(), [output], **attributes))
        return output

    def constant(self, name: str, values: Any, element_type: str = "float32") -> str:
        """Add a constant."""
        array = np.asarray(values, element_type)
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def drawn(self, name: str, shape: Sequence[int], scale: float = 0.2) -> str:
        """Add normal weights."""
        return self.constant(name, self._rng.standard_normal(shape) * scale)

    def save(self, path: Path, opset: int, ir_version: int = 8) -> None:
        """Write the model."""
        inputs = [helper.make_tensor_value_info(*port) for port in self.inputs]
        outputs = [helper.make_tensor_value_info(*port) for port in self.outputs]
        graph = helper.make_graph(self.nodes, path.stem, inputs, outputs, self.constants)
        imports = [helper.make_opsetid("", opset)]
        model = helper.make_model(graph, opset_imports=imports, ir_version=ir_version)
        onnx.checker.check_model(model)
        onnx.save(model, str(path))


def gridsample(path: Path) -> None:
    """Sample a picture at the points of a grid."""
    shape = [2, 3, 32, 32]
    inputs: list[Port] = [("x", FLOAT, shape), ("g", FLOAT, [2, 32, 32, 2])]
    graph = Graph(inputs, [("y", FLOAT, shape)])
    graph.node("GridSample", "x g", "y", mode="bilinear", padding_mode="zeros", align_corners=0)
    graph.save(path, opset=16)


def sign(path: Path) -> None:
    """Take the signs of whole numbers."""
    shape = [64, 64, 64]
    graph = Graph([("x", INT64, shape)], [("y", INT64, shape)])
    graph.node("Sign", "x", "y")
    graph.save(path, opset=13)


def reducel1(path: Path) -> None:
    """Reduce over the batch, so that the output has no batch axis."""
    graph = Graph([("x", FLOAT, [2, 64, 56, 56])], [("y", FLOAT, [1, 64, 56, 56])])
    axes = graph.constant("axes", [0], "int64")
    graph.node("ReduceL1", f"x {axes}", "y", keepdims=1)
    graph.save(path, opset=18)


def suppression(path: Path) -> None:
    """Select boxes: how many rows there are depends on the data."""
    inputs: list[Port] = [("boxes", FLOAT, [1, 100, 4]), ("scores", FLOAT, [1, 1, 100])]
    graph = Graph(inputs, [("selected", INT64, ["count", 3])])
    graph.constant("most", [50], "int64")
    graph.constant("overlap", [0.5])
    graph.constant("least", [0.3])
    graph.node("NonMaxSuppression", "boxes scores most overlap least", "selected")
    graph.save(path, opset=13, ir_version=7)


def quantized(path: Path) -> None:
    """160 quantized convolutions, which take a session long to create."""
    channels = 48
    graph = Graph([("x", FLOAT, [1, 3, 16, 16])], [("y", FLOAT, [1, channels, 16, 16])])
    rng = np.random.default_rng(0)
    weights_scale = f"{graph.constant('ws', 0.02)} {graph.constant('wz', 0, 'int8')}"
    scale = f"{graph.constant('s', 0.05)} {graph.constant('z', 128, 'uint8')}"
    last = "x"
    for number in range(160):
        shape = (channels, 3 if number == 0 else channels, 3, 3)
        values = (rng.standard_normal(shape) * 20).clip(-127, 127)
        weights = graph.constant(f"w{number}", values, "int8")
        graph.node("QuantizeLinear", f"{last} {scale}", f"q{number}")
        graph.node("DequantizeLinear", f"q{number} {scale}", f"d{number}")
        graph.node("DequantizeLinear", f"{weights} {weights_scale}", f"v{number}")
        graph.node("Conv", f"d{number} v{number}", f"c{number}", pads=[1] * 4)
        last = graph.node("Relu", f"c{number}", f"r{number}")
    graph.node("QuantizeLinear", f"{last} {scale}", "q")
    graph.node("DequantizeLinear", f"q {scale}", "y")
    graph.save(path, opset=13)


def normalized_product(path: Path) -> None:
    """A product before a normalization, which a release fuses wrongly and then refuses."""
    graph = Graph([("x", FLOAT, [1, 10, 16])], [("y", FLOAT, [1, 8, 10])])
    graph.node("MatMul", f"x {graph.drawn('w', (16, 8), 1.0)}", "m")
    graph.node("Transpose", "m", "t", perm=[0, 2, 1])
    ones, zeros = np.ones(8), np.zeros(8)
    parameters = [("gain", ones), ("bias", zeros), ("mean", zeros), ("variance", ones)]
    names = " ".join(graph.constant(name, values) for name, values in parameters)
    graph.node("BatchNormalization", f"t {names}", "y")
    graph.save(path, opset=17)


def branches(path: Path) -> None:
    """Eight branches that may run side by side."""
    shape = [1, 100_000]
    graph = Graph([("x", FLOAT, shape)], [("y", FLOAT, shape)])
    ends = []
    for branch in range(8):
        last = "x"
        for depth in range(4):
            last = graph.node("Sin" if depth % 2 else "Exp", last, f"b{branch}_{depth}")
        ends.append(last)
    graph.node("Sum", " ".join(ends), "y")
    graph.save(path, opset=17)


def three_outputs(path: Path) -> None:
    """A detector's two heads and their concatenation."""
    outputs: list[Port] = [
        ("output", FLOAT, [1, 7, 1280]),
        ("h1", FLOAT, [1, 7, 32, 32]),
        ("h2", FLOAT, [1, 7, 16, 16]),
    ]
    graph = Graph([("x", FLOAT, [1, 3, 32, 32])], outputs)
    flat = graph.constant("flat", [1, 7, -1], "int64")
    weights = graph.drawn("w", (8, 3, 3, 3))
    graph.node("Conv", f"x {weights}", "c", pads=[1] * 4, kernel_shape=[3, 3])
    graph.node("Relu", "c", "r")
    graph.node("MaxPool", "r", "p", kernel_shape=[2, 2], strides=[2, 2])
    for head, features in (("h1", "r"), ("h2", "p")):
        weights = graph.drawn(f"w{head}", (7, 8, 1, 1))
        graph.node("Conv", f"{features} {weights}", head, kernel_shape=[1, 1])
        graph.node("Reshape", f"{head} {flat}", f"f{head}")
    graph.node("Concat", "fh1 fh2", "output", axis=2)
    graph.save(path, opset=12)


def channel_mean(path: Path) -> None:
    """The mean of a convolution's channels."""
    graph = Graph([("x", FLOAT, [1, 8, 12, 12])], [("y", FLOAT, [1, 1, 12, 12])])
    graph.node(
        "Conv", f"x {graph.drawn('w', (8, 8, 3, 3))}", "c", kernel_shape=[3, 3], pads=[1] * 4
    )
    graph.node("ReduceMean", "c", "y", axes=[1], keepdims=1)
    graph.save(path, opset=12, ir_version=7)


def boxes_and_scores(path: Path) -> None:
    """Boxes of up to 640 pixels beside scores of 0 to 1, as exports of YOLO have them."""
    graph = Graph([("x", FLOAT, [1, 8, 12, 12])], [("y", FLOAT, [1, 5, 144])])
    graph.node(
        "Conv", f"x {graph.drawn('w', (8, 8, 3, 3))}", "c", kernel_shape=[3, 3], pads=[1] * 4
    )
    graph.node("ReduceMean", "c", "m", axes=[1], keepdims=1)
    graph.node("Sigmoid", "m", "p")
    graph.node("Conv", f"x {graph.drawn('v', (4, 8, 1, 1))}", "b", kernel_shape=[1, 1])
    graph.node("Tanh", "b", "t")
    graph.node("Mul", f"t {graph.constant('size', 300)}", "sized")
    graph.node("Add", f"sized {graph.constant('middle', 320)}", "moved")
    graph.node("Reshape", f"moved {graph.constant('as_boxes', [1, 4, 144], 'int64')}", "boxes")
    graph.node("Reshape", f"p {graph.constant('as_scores', [1, 1, 144], 'int64')}", "scores")
    graph.node("Concat", "boxes scores", "y", axis=1)
    graph.save(path, opset=12, ir_version=7)


def picture_classes(path: Path) -> None:
    """A classifier of pictures with drawn weights."""
    graph = Graph([("x", FLOAT, ["n", 3, 64, 64])], [("y", FLOAT, ["n", 4])])
    weights = graph.drawn("w", (8, 3, 3, 3), 1.0)
    graph.node("Conv", f"x {weights}", "c", kernel_shape=[3, 3], pads=[1] * 4, strides=[2, 2])
    graph.node("Relu", "c", "r")
    graph.node("Flatten", "r", "f")
    graph.node("MatMul", f"f {graph.drawn('v', (8 * 32 * 32, 4), 0.02)}", "y")
    graph.save(path, opset=13)


def dense(path: Path) -> None:
    """Four dense layers, for planted faults."""
    graph = Graph([("x", FLOAT, [1, 512])], [("y", FLOAT, [1, 512])])
    last = "x"
    for number in range(4):
        weights = graph.drawn(f"w{number}", (512, 512), 0.04)
        graph.node("MatMul", f"{last} {weights}", f"m{number}")
        last = graph.node("Tanh", f"m{number}", "y" if number == 3 else f"t{number}")
    graph.save(path, opset=13)


MODELS: dict[str, Callable[[Path], None]] = {
    function.__name__: function
    for function in (
        gridsample, sign, reducel1, suppression, quantized, normalized_product, branches,
        three_outputs, channel_mean, boxes_and_scores, picture_classes, dense,
    )
}  # fmt: skip

_EXPORT = """
import sys
import jax
import jax.numpy as jnp
from jax import export, lax
def write(function, shape, dtype):
    made = export.export(jax.jit(lambda *, x: function(x)))(x=jax.ShapeDtypeStruct(shape, dtype))
    open(sys.argv[1], "wb").write(made.serialize())
"""

JAX_MODELS = {
    "scan": """
jax.config.update("jax_enable_x64", True)
def step(carry, values):
    product = carry + jnp.outer(values, values)
    root = jnp.sqrt(product[0, 0] + 1.0)
    return product * 0.5 + jnp.eye(3) * root, root
def scan(x):
    carry, roots = lax.scan(step, jnp.eye(3, dtype=jnp.float64), x[0])
    return {"y": roots[None], "c": carry[None]}
write(scan, (1, 1000, 3), jnp.float64)
""",
    "differences": """
def roughness(x):
    return sum(jnp.sum(jnp.square(jnp.diff(x[0], axis=axis))) for axis in range(3))
write(lambda x: {"y": jax.grad(roughness)(x)}, (1, 64, 64, 64), jnp.float32)
""",
}
"""Exports by the older of two releases, so that both can read the file."""


def write_onnx(name: str, folder: Path) -> Path:
    """Write a model; return its path."""
    path = folder / "model.onnx"
    MODELS[name](path)
    return path


def write_jax(name: str, folder: Path, python: Path) -> Path:
    """Export a model with the jax of ``python``; return its path."""
    path = folder / "model.jax"
    subprocess.run([python, "-c", _EXPORT + JAX_MODELS[name], path], check=True)
    return path


def write_pictures(folder: Path, count: int = 12) -> Path:
    """Write a zip of noisy JPEG files in a folder for each of four classes; return its path."""
    from PIL import Image

    rng = np.random.default_rng(0)
    path = folder / "pictures.zip"
    rows = ["file,label"]
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(count):
            coarse = rng.integers(0, 256, (12, 16, 3), np.uint8)
            picture = Image.fromarray(coarse).resize((128, 96), Image.Resampling.BICUBIC)
            file = io.BytesIO()
            picture.save(file, "JPEG", quality=85)
            info = zipfile.ZipInfo(f"c{number % 4}/{number:02}.jpg")
            archive.writestr(info, file.getvalue())
            rows.append(f"{info.filename},{number % 4}")
        archive.writestr(zipfile.ZipInfo("labels.csv"), "\n".join(rows))
    return path
