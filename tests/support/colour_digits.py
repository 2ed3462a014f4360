"""A small real network on colour pictures, and pictures whose digit only colours in order show.

The network is a convolution that computes the digit out of the colours, and behind it the trained
network of manifests/digits. A picture has the digit as red minus blue, under noise that both have,
so that another order of colours, mean, scale or size makes another class of many pictures.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import ModelProto, helper, numpy_helper
from PIL import Image

from tests.support.archives import write_zip
from tests.support.project import DIGITS

__all__ = ["NAMES", "ColourNetwork", "colour_network", "write_pictures"]

Array = NDArray[np.float32]

NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
PICTURES = 120
SIZES = ((24, 40), (31, 33), (40, 24))
"""Heights and widths of the pictures, in turn."""

_SIDE = 8  # of a digit, in pixels
_WHITE = 16  # of a digit
_CONTRAST = 7  # levels a unit of a digit
_UPSIDE_DOWN = 3  # an EXIF orientation
_ORIENTATION = 0x0112  # the EXIF tag


@dataclass(frozen=True)
class ColourNetwork:
    """Facts of a network: its pictures, and what was done to their R, G, B.

    ``kernel`` is how many pixels, down and across, make one of the digit. ``has_background`` adds a
    class 0, which nothing is.
    """

    mean: Sequence[float]
    scale: Sequence[float]
    kernel: tuple[int, int] = (1, 2)
    color: str = "RGB"
    has_background: bool = False
    input: str = "image"
    output: str = "logits"

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of its input."""
        return _SIDE * self.kernel[0], _SIDE * self.kernel[1]

    @property
    def names(self) -> str:
        """The file of the names of its classes."""
        return "\n".join(["Background"] * self.has_background + [*NAMES, ""])


def colour_network(facts: ColourNetwork) -> ModelProto:
    """Return the network as an ONNX model, a plain CNN as manifests/convert takes it."""
    model = onnx.load(DIGITS / "digits_cnn.onnx")
    graph = model.graph
    height, width = facts.size
    source = helper.make_tensor_value_info(facts.input, 1, ["batch", 3, height, width])
    nodes = [
        helper.make_node(
            "Conv",
            [facts.input, "colours_weight", "colours_bias"],
            ["colours"],
            kernel_shape=facts.kernel,
            strides=facts.kernel,
        ),
        *graph.node,
    ]
    nodes[1].input[0] = "colours"
    nodes[-1].output[0] = facts.output
    weight, bias = _digit_of_colours(facts)
    arrays = [
        numpy_helper.from_array(weight, "colours_weight"),
        numpy_helper.from_array(bias, "colours_bias"),
    ]
    for tensor in graph.initializer:
        is_last = tensor.name in nodes[-1].input
        arrays.append(_with_background(tensor) if is_last and facts.has_background else tensor)
    classes = len(NAMES) + facts.has_background
    scores = helper.make_tensor_value_info(facts.output, 1, ["batch", classes])
    made = helper.make_graph(nodes, "colours", [source], [scores], arrays)
    return helper.make_model(made, opset_imports=model.opset_import, ir_version=model.ir_version)


def _digit_of_colours(facts: ColourNetwork) -> tuple[Array, Array]:
    """Return weights and bias: the mean of red minus blue over a kernel, 0 to 1 as a digit is.

    The colours come as (levels - mean) / scale.
    """
    share = np.array([1, 0, -1]) / (_CONTRAST * _WHITE)
    weights = share * facts.scale
    if facts.color == "BGR":
        weights = weights[::-1]
    down, across = facts.kernel
    weight = np.broadcast_to(weights[None, :, None, None] / (down * across), (1, 3, down, across))
    bias = np.array([share @ np.asarray(facts.mean)])
    return weight.astype(np.float32), bias.astype(np.float32)


def _with_background(tensor: onnx.TensorProto) -> onnx.TensorProto:
    """Return the weights or the biases of the last layer with a class 0 before the others."""
    values = numpy_helper.to_array(tensor)
    first = np.zeros((1, *values.shape[1:]), values.dtype)
    return numpy_helper.from_array(np.concatenate([first, values]), tensor.name)


def write_pictures(path: Path) -> Mapping[str, str]:
    """Write a dataset of PNG files with the names of their classes; return those by the files.

    Every fourth picture has an EXIF orientation, which the agents ignored.
    """
    file = np.load(DIGITS / "digits_test.npz")
    rng = np.random.default_rng(11)
    members = {}
    labels = {}
    for number in range(PICTURES):
        name = f"{number:03}.png"
        size = SIZES[number % len(SIZES)]
        members[name] = _png(_coloured(file["image"][number], size, rng), number % 4 == 0)
        labels[name] = NAMES[file["label"][number]]
    table = io.StringIO()
    writer = csv.writer(table)
    writer.writerow(["file", "label"])
    writer.writerows(labels.items())
    write_zip(path, {**members, "labels.csv": table.getvalue().encode()})
    return labels


def _coloured(
    digit: NDArray[np.uint8], size: tuple[int, int], rng: np.random.Generator
) -> Image.Image:
    height, width = size
    plain = Image.fromarray(digit * (255 // _WHITE)).resize(
        (width, height), Image.Resampling.BICUBIC
    )
    levels = np.asarray(plain, np.float64) / (255 // _WHITE) * _CONTRAST
    noise = rng.uniform(60, 150, size)
    green = rng.uniform(0, 255, size)
    pixels = np.stack([noise + levels + rng.normal(0, 80, size), green, noise], axis=-1)
    return Image.fromarray(pixels.clip(0, 255).round().astype(np.uint8))


def _png(picture: Image.Image, is_marked: bool) -> bytes:
    exif = Image.Exif()
    if is_marked:
        exif[_ORIENTATION] = _UPSIDE_DOWN
    data = io.BytesIO()
    picture.save(data, "PNG", exif=exif)
    return data.getvalue()
