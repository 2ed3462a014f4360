"""The cost of ONNX models, with shapes by onnx's own inference."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.extras import install
from pytest_mlms.measure.structure.cost import ModelCost, bound_shape, cost_of


def describe_onnx(
    path: Path, batch_size: int = 1, axes: Mapping[str, int] | None = None
) -> ModelCost:
    """Return the cost of an ONNX file; ``axes`` are the sizes of free axes by name.

    The first axis of an input is the batch. Raises MlmsError for a file that is no model, and for a
    free axis without a size.
    """
    try:
        import onnx
        from google.protobuf.message import DecodeError

        from pytest_mlms.measure.structure.onnx_shapes import known_tensors, shape_errors
        from pytest_mlms.measure.structure.onnx_structure import structure_of
    except ImportError as error:
        raise MlmsError(f"describing a model needs onnx; {install('onnx')}") from error
    try:
        model = onnx.load(str(path), load_external_data=False)
        if not model.graph.node:
            raise ValueError("it is no ONNX model, or one without nodes")
        _bind_inputs(model.graph, batch_size, axes or {})
        _forget_shapes(model.graph)
        tensors = known_tensors(model)
    except (DecodeError, OSError, ValueError, *shape_errors()) as error:
        raise MlmsError(f"{path} can't be described: {error}") from error
    inputs = [value.name for value in _inputs_of(model.graph)]
    counter = f"onnx {onnx.__version__}'s shape inference"
    return cost_of(structure_of(model.graph, inputs, tensors, counter))


def _inputs_of(graph: Any) -> Iterator[Any]:
    """Yield the inputs of a graph; older models list their weights among them."""
    weights = {tensor.name for tensor in graph.initializer}
    for value in graph.input:
        if value.name not in weights:
            yield value


def _bind_inputs(graph: Any, batch_size: int, axes: Mapping[str, int]) -> None:
    """Give the free axes of the inputs their sizes; raises ValueError where one has none."""
    for value in _inputs_of(graph):
        dimensions = value.type.tensor_type.shape.dim
        sizes = [_size_of(dimension) for dimension in dimensions]
        shape = bound_shape(value.name, sizes, batch_size, axes)
        for dimension, size in zip(dimensions, shape, strict=True):
            dimension.dim_value = size


def _size_of(dimension: Any) -> int | str | None:
    """Return the size of an axis, the name of a free one, or None for one without a name."""
    if dimension.dim_value > 0:
        return int(dimension.dim_value)
    return dimension.dim_param or None


def _forget_shapes(graph: Any) -> None:
    """Remove the shapes in the file: they were written before the free axes had sizes."""
    del graph.value_info[:]
    for value in graph.output:
        value.type.tensor_type.ClearField("shape")
