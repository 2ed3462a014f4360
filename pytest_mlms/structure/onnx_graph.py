"""The structure of an ONNX model, with shapes by onnx's own inference."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mlms_predictors import Operation, Structure, Tensor
from mlms_predictors._run.products import (
    contraction,
    convolution,
    count,
    matrix_products,
    transposed_convolution,
)

from pytest_mlms.errors import MlmsError
from pytest_mlms.structure.cost import Described, bound_shape, describe

__all__ = ["describe_onnx"]


def describe_onnx(
    path: Path, batch_size: int = 1, axes: Mapping[str, int] | None = None
) -> Described:
    """Describe an ONNX file; ``axes`` are the sizes of free axes by name, the first axis of an
    input is the batch.

    Raises MlmsError for what is no model, or has another free axis.
    """
    try:
        import onnx
        from google.protobuf.message import DecodeError

        from pytest_mlms.structure.onnx_shapes import known_tensors
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
    """Give the free axes of the inputs their sizes, and forget the shapes that were written down
    without them.
    """
    weights = {tensor.name for tensor in graph.initializer}
    for value in graph.input:
        if value.name not in weights:
            dims = value.type.tensor_type.shape.dim
            sizes = [
                axis.dim_value if axis.dim_value > 0 else axis.dim_param or None for axis in dims
            ]
            for axis, size in zip(
                dims, bound_shape(value.name, sizes, batch_size, axes), strict=True
            ):
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
    return Structure(
        layers, list(known.values()), inputs, [value.name for value in graph.output], counter
    )


def _flops(node: Any, known: Mapping[str, Tensor]) -> int | None:
    if node.domain not in ("", "ai.onnx"):
        return None
    shapes = [
        known[name].shape if name in known else None for name in (*node.input[:2], *node.output[:1])
    ]
    found: int | None = count(
        node.op_type, _FORMULAS, [None if shape and None in shape else shape for shape in shapes]
    )
    return found


_FORMULAS = {
    "Conv": convolution,
    "ConvInteger": convolution,
    "ConvTranspose": transposed_convolution,
    "Gemm": contraction,
    "MatMul": matrix_products,
    "MatMulInteger": matrix_products,
}
