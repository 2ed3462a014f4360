"""Quantised models: the scale and the zero point that their files have, and the steps by them.

Steps make integers of pictures and of arrays of floats.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from mlms_predictors import Tensor
from mlms_predictors._tflite_files import field, number, target
from numpy.typing import NDArray

from pytest_mlms.author.draft.data import ArrayData
from pytest_mlms.author.draft.onnx_hints import model_in
from pytest_mlms.core.errors import MlmsError

_MODEL_GRAPHS = 2
_GRAPH_TENSORS, _GRAPH_INPUTS, _GRAPH_OUTPUTS = 0, 1, 2
_TENSOR_QUANTISATION = 4
_SCALES, _ZERO_POINTS = 2, 3
"""Fields of tables in TensorFlow Lite's schema.fbs."""

_PASSING = (
    *("Flatten", "Identity", "MaxPool", "Pad", "Reshape", "Slice", "Squeeze"),
    *("Transpose", "Unsqueeze"),
)
"""Operators of ONNX whose output has the scale of their first input."""

_SHARE_ERROR = 0.01  # of the range of shares

LARGEST = 255.0  # of pixels
IMAGENET = "normalize: {mean: [123.675, 116.28, 103.53], scale: [58.395, 57.12, 57.375]}"
_LESS_128 = "normalize: {mean: 128, scale: 1}"

_RANGE_ERROR = 0.02  # of a range, at either end
_IMAGENET_ENDS = ((-3.0, -1.5), (1.5, 3.5))
_MOST_BEYOND = 0.01  # the share of values that may be beyond what integers stand for

Step = tuple[str, str]
"""A step, and a comment."""


class Quantisation(NamedTuple):
    """Integers x that stand for (x - zero_point) * scale."""

    scale: float
    zero_point: int

    @property
    def parameters(self) -> str:
        """The parameters of a step, as a manifest has them."""
        return f"scale: {self.scale:.9g}, zero_point: {self.zero_point}"

    def range(self, dtype: str) -> tuple[float, float]:
        """Return the smallest and the largest number that integers of a type stand for."""
        bounds = np.iinfo(dtype)
        low, high = (
            (end - self.zero_point) * self.scale for end in (int(bounds.min), int(bounds.max))
        )
        return low, high

    def are_shares(self, dtype: str) -> bool:
        """Return whether the range is that of probabilities, 0 to 1, which softmax has."""
        low, high = self.range(dtype)
        return abs(low) < _SHARE_ERROR and abs(high - 1) < _SHARE_ERROR

    def real(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return what integers stand for."""
        return np.asarray((values.astype(np.float64) - self.zero_point) * self.scale)


def is_quantised(dtype: str) -> bool:
    """Return whether values of a type may stand for real numbers by a scale and a zero point."""
    return dtype in ("int8", "uint8", "int16")


def quantisation_of(
    graph: Path, inputs: Sequence[Tensor], outputs: Sequence[Tensor]
) -> dict[str, Quantisation]:
    """Return the quantisation of inputs and outputs by name, of one scale each.

    None are there for a file of another kind, or one that doesn't tell.
    """
    found: dict[str, Quantisation] = {}
    if graph.suffix.lower() == ".tflite":
        for kind, tensors in ((_GRAPH_INPUTS, inputs), (_GRAPH_OUTPUTS, outputs)):
            in_file = _of_tflite(graph, kind)
            if len(in_file) == len(tensors):
                pairs = zip(tensors, in_file, strict=True)
                found.update({tensor.name: one for tensor, one in pairs if one is not None})
    else:
        found = _of_onnx(graph)
    kinds = {tensor.name: tensor.dtype for tensor in (*inputs, *outputs)}
    return {name: one for name, one in found.items() if is_quantised(kinds.get(name, ""))}


def _of_tflite(path: Path, kind: int) -> list[Quantisation | None]:
    """Return the quantisation of the inputs or outputs of the first graph, in its order."""
    try:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            graph = target(data, target(data, field(data, target(data, 0), _MODEL_GRAPHS)) + 4)
            tensors = target(data, field(data, graph, _GRAPH_TENSORS)) + 4
            found = []
            for place in _vector(data, field(data, graph, kind), "<i", 4):
                tensor = target(data, tensors + 4 * place)
                found.append(_of_tensor(data, tensor))
            return found
    except (struct.error, ValueError, OSError):  # the framework has read it, so it tells nothing
        return []


def _of_tensor(data: Any, tensor: int) -> Quantisation | None:
    """Return the quantisation of a tensor, None where it has none, or one for each channel."""
    place = field(data, tensor, _TENSOR_QUANTISATION)
    if not place:
        return None
    table = target(data, place)
    scales = list(_vector(data, field(data, table, _SCALES), "<f", 4))
    zeros = list(_vector(data, field(data, table, _ZERO_POINTS), "<q", 8))
    if len(scales) != 1 or not scales[0] > 0:
        return None
    return Quantisation(float(scales[0]), int(zeros[0]) if zeros else 0)


def _vector(data: Any, place: int, kind: str, size: int) -> Iterator[Any]:
    """Yield the numbers of a vector, none where the field is absent."""
    if place:
        first = target(data, place)
        for index in range(number("<I", data, first)):
            yield number(kind, data, first + 4 + size * index)


def _of_onnx(path: Path) -> dict[str, Quantisation]:
    """Return the quantisation of the inputs and outputs of a graph, by name.

    It is that of the operators QuantizeLinear, DequantizeLinear and QLinear… that give or take
    them, also behind operators that only move values.
    """
    model = model_in(path)
    if model is None:
        return {}
    constants = _constants(model.graph)
    return {**_of_outputs(model.graph, constants), **_of_inputs(model.graph, constants)}


def _of_outputs(graph: Any, constants: Mapping[str, NDArray[Any]]) -> dict[str, Quantisation]:
    """Return the quantisation of what nodes give, by name."""
    found: dict[str, Quantisation] = {}
    for node in graph.node:
        if node.op_type in _PASSING:
            one = found.get(node.input[0])
        else:
            one = _read(node, _places(node)[1], constants)
        if one is not None:
            found[node.output[0]] = one
    return found


def _of_inputs(graph: Any, constants: Mapping[str, NDArray[Any]]) -> dict[str, Quantisation]:
    """Return the quantisation of the graph's inputs, by the first node that tells."""
    found: dict[str, Quantisation] = {}
    origins = {value.name: value.name for value in graph.input}
    for node in graph.node:
        origin = origins.get(node.input[0]) if node.input else None
        if origin is None:
            continue
        if node.op_type in _PASSING:
            origins[node.output[0]] = origin
        one = _read(node, _places(node)[0], constants)
        if one is not None:
            found.setdefault(origin, one)
    return found


def _places(node: Any) -> tuple[int, int]:
    """Return where a node has the scales of its first input and its output among its inputs.

    0 stands for none. The zero point follows the scale.
    """
    kind = node.op_type
    if kind == "QuantizeLinear":
        return 0, 1
    if kind == "DequantizeLinear":
        return 1, 0
    if kind in ("QLinearConv", "QLinearMatMul", "QLinearAdd", "QLinearMul", "QGemm"):
        return 1, 7 if kind == "QGemm" else 6
    return (1, 3) if kind.startswith("QLinear") and len(node.input) == 5 else (0, 0)


def _read(node: Any, place: int, constants: Mapping[str, NDArray[Any]]) -> Quantisation | None:
    """Return the scale and the zero point at a place of a node's inputs, None if not one each."""
    if not place or len(node.input) <= place:
        return None
    scale = constants.get(node.input[place])
    zero: NDArray[Any] | None = np.zeros(1)
    if len(node.input) > place + 1 and node.input[place + 1]:
        zero = constants.get(node.input[place + 1])
    if scale is None or zero is None or scale.size != 1 or zero.size != 1 or not scale.item() > 0:
        return None
    return Quantisation(float(scale.item()), int(zero.item()))


def _constants(graph: Any) -> dict[str, NDArray[Any]]:
    """Return the small arrays of a graph by name: initializers, and the outputs of Constant."""
    from onnx import numpy_helper

    tensors = [(tensor.name, tensor) for tensor in graph.initializer]
    for node in graph.node:
        if node.op_type == "Constant":
            tensors += [(node.output[0], one.t) for one in node.attribute if one.name == "value"]
    found = {}
    for name, tensor in tensors:
        if tensor.data_location != tensor.EXTERNAL and np.prod(tensor.dims) == 1:
            found[name] = numpy_helper.to_array(tensor)
    return found


def largest_of(pixels: NDArray[Any]) -> float:
    """Return the largest of dark pixels, such as 16, and 255 where some are bright."""
    largest = float(pixels.max(initial=0))
    return largest if 0 < largest <= LARGEST / 2 else LARGEST


def normalize(low: float, high: float, largest: float = LARGEST) -> str:
    """Return the step that makes pixels of 0 up to the ``largest`` those from low to high."""
    scale = largest / (high - low)
    return f"normalize: {{mean: {(0 - low) * scale:g}, scale: {scale:g}}}"


def steps_of_range(
    tensor: Tensor, quantisation: Quantisation | None, *, has_colors: bool, largest: float = LARGEST
) -> tuple[list[Step], str]:
    """Return the steps that make the integers of a model of pixels, and a comment on the input.

    The pixels are 0 up to the ``largest``.
    """
    is_signed = tensor.dtype == "int8"
    if quantisation is None:
        reason = "a guess: pixels less 128, as the file has no scale for them"
        return ([(_LESS_128, reason)] if is_signed else []), ""
    low, high = quantisation.range(tensor.dtype)
    stands_for = f"{tensor.dtype} stands for {low:.4g} to {high:.4g}"
    step = _usual_step(low, high, largest)
    if step is None and has_colors and _is_imagenet(low, high):
        step = IMAGENET
    elif step is None or (not is_signed and largest == LARGEST):
        reason = f"pixels as they are: {stands_for}"
        steps = [(_LESS_128, f"a guess: pixels less 128; {stands_for}")] if is_signed else []
        return steps, "" if is_signed else reason
    written = (f"quantize: {{{quantisation.parameters}, to: {tensor.dtype}}}", "of the file")
    if not step:
        return [written], ""
    return [(step, f"a guess: {stands_for}"), written], ""


def _usual_step(low: float, high: float, largest: float) -> str | None:
    """Return the step that makes a usual range of pixels, "" for none, None for another range."""
    ranges = {
        (0.0, 1.0): normalize(0, 1, largest),
        (-1.0, 1.0): normalize(-1, 1, largest),
        (0.0, largest): normalize(0, largest, largest),
        (0.0, LARGEST): "",
        (-128.0, 127.0): _LESS_128,
    }
    for (least, most), step in ranges.items():
        error = _RANGE_ERROR * (most - least)
        if abs(low - least) < error and abs(high - most) < error:
            return step
    return None


def _is_imagenet(low: float, high: float) -> bool:
    """Return whether a range is about that of ImageNet's mean and scale."""
    pairs = zip((low, high), _IMAGENET_ENDS, strict=True)
    return all(least < end < most for end, (least, most) in pairs)


def step_to_integers(tensor: Tensor, data: ArrayData, quantisation: Quantisation | None) -> Step:
    """Return the step that makes a model's integers of an array of another type.

    Raises MlmsError for numbers that no integers stand for, as a cast would cut off fractions.
    """
    dtype, _ = data.arrays[tensor.name]
    values = data.values(tensor.name).ravel()
    ends = quantisation.range(tensor.dtype) if quantisation else (0.0, 0.0)
    if quantisation is not None and _beyond(values, ends) <= _MOST_BEYOND:
        step = f"quantize: {{{quantisation.parameters}, to: {tensor.dtype}}}"
        return step, f"the arrays are {dtype}; scale and zero point of the file"
    of_whole = ", of whole numbers" if dtype.kind == "f" else ""
    if _are_whole(values, tensor.dtype):
        return f"cast: {{to: {tensor.dtype}}}", f"the arrays are {dtype}{of_whole}"
    extremes = f"{values.min():.4g} to {values.max():.4g}"
    found = f"{data.path} has {tensor.name!r} of {dtype} from {extremes}"
    if quantisation is None:
        problem = f"{found}, and the model takes {tensor.dtype}, of unknown scale"
        advice = f"save the array as {tensor.dtype}, as the model takes it"
        raise MlmsError(f"{problem}; {advice}: numpy.round(x / scale + zero_point)")
    low, high = ends
    problem = f"{found}, and {tensor.dtype} of the model stands for {low:.4g} to {high:.4g}"
    raise MlmsError(f"{problem}; give the numbers that the model was trained on, or {tensor.dtype}")


def _beyond(values: NDArray[Any], ends: tuple[float, float]) -> float:
    """Return the share of values that are outside of a range by more than rounding."""
    low, high = ends
    room = (high - low) / 255
    return float(1 - ((values >= low - room) & (values <= high + room)).mean())


def _are_whole(values: NDArray[Any], dtype: str) -> bool:
    """Return whether values are whole numbers that a type of integers holds."""
    if not np.isfinite(values).all():
        return False
    bounds = (0, 1) if dtype == "bool" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    is_within = (values >= bounds[0]) & (values <= bounds[1])
    return bool((is_within & (np.floor(values) == values)).all())
