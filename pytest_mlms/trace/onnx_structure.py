"""The structure of an ONNX model, with shapes by onnx's own inference."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mlms_predictors import Operation, Structure, Tensor

from pytest_mlms.errors import MlmsError
from pytest_mlms.trace.describe import Described, Shape, bound_shape, describe

__all__ = ["describe_onnx"]


def describe_onnx(path: Path, batch_size: int = 1, axes: Mapping[str, int] | None = None) -> Described:
    """Describe an ONNX file; ``axes`` are the sizes of free axes by name, the first axis of an input is the batch.

    Raises MlmsError for what is no model, or has another free axis.
    """
    try:
        import onnx
        from google.protobuf.message import DecodeError

        from pytest_mlms.trace.onnx_shapes import known_tensors
    except ImportError as error:
        raise MlmsError("describing a model needs onnx; pip install 'pytest-mlms[onnx]'") from error
    try:
        model = onnx.load(str(path), load_external_data=False)
        if not model.graph.node:
            raise ValueError("it is no ONNX model, or one without nodes")
        _bind(model.graph, batch_size, axes or {})
        known = known_tensors(model)
    except (DecodeError, OSError, ValueError, onnx.shape_inference.InferenceError) as error:
        raise MlmsError(f"{path} can't be described: {error}") from error
    return describe(_structure(model.graph, known, f"onnx {onnx.__version__}'s shape inference"))


def _bind(graph: Any, batch_size: int, axes: Mapping[str, int]) -> None:
    """Give the free axes of the inputs their sizes, and forget the shapes that were written down without them."""
    weights = {tensor.name for tensor in graph.initializer}
    for value in graph.input:
        if value.name not in weights:
            dims = value.type.tensor_type.shape.dim
            sizes = [axis.dim_value if axis.dim_value > 0 else axis.dim_param or None for axis in dims]
            for axis, size in zip(dims, bound_shape(value.name, sizes, batch_size, axes), strict=True):
                axis.dim_value = size
    del graph.value_info[:]
    for value in graph.output:
        value.type.tensor_type.ClearField("shape")


def _structure(graph: Any, known: Mapping[str, Tensor], counter: str) -> Structure:
    weights = {tensor.name for tensor in graph.initializer}
    layers = [
        Operation(
            node.name or node.output[0],
            node.op_type,
            _flops(node, known),
            [name for name in node.input if name],
            [name for name in node.output if name],
        )
        for node in graph.node
    ]
    inputs = [value.name for value in graph.input if value.name not in weights]
    return Structure(layers, list(known.values()), inputs, [value.name for value in graph.output], counter)


def _flops(node: Any, known: Mapping[str, Tensor]) -> int | None:
    if node.op_type in _UNCOUNTED or node.domain not in ("", "ai.onnx"):
        return None
    count = _COUNTS.get(node.op_type)
    if count is None:
        return 0
    shapes = [known[name].shape for name in (*node.input[:2], node.output[0]) if name in known]
    attributes = {attribute.name: attribute for attribute in node.attribute}
    return count([tuple(size or 0 for size in shape) for shape in shapes], attributes) if len(shapes) == 3 else None


def _convolution(shapes: Sequence[Shape], attributes: Mapping[str, Any]) -> int:
    """Each output is a sum over a kernel and the inputs of its group; the kernel is outputs x inputs / group x …."""
    _, kernel, output = shapes
    return 2 * math.prod(output) * math.prod(kernel[1:])


def _transposed_convolution(shapes: Sequence[Shape], attributes: Mapping[str, Any]) -> int:
    """Each input is spread over a kernel and the outputs of its group; the kernel is inputs x outputs / group x …."""
    source, kernel, _ = shapes
    return 2 * math.prod(source) * math.prod(kernel[1:])


def _gemm(shapes: Sequence[Shape], attributes: Mapping[str, Any]) -> int:
    left, _, output = shapes
    turned = "transA" in attributes and attributes["transA"].i
    return 2 * math.prod(output) * left[0 if turned else 1]


def _product(shapes: Sequence[Shape], attributes: Mapping[str, Any]) -> int:
    left, _, output = shapes
    return 2 * math.prod(output) * left[-1]


_COUNTS: dict[str, Callable[[Sequence[Shape], Mapping[str, Any]], int]] = {
    "Conv": _convolution,
    "ConvInteger": _convolution,
    "ConvTranspose": _transposed_convolution,
    "Gemm": _gemm,
    "MatMul": _product,
    "MatMulInteger": _product,
}
_UNCOUNTED = {"Attention", "Einsum", "GRU", "If", "LSTM", "Loop", "QLinearConv", "QLinearMatMul", "RNN", "Scan"}
