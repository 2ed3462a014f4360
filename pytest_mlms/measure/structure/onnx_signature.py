"""The inputs and outputs of an ONNX file, read without a framework."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from mlms_predictors import Tensor
from mlms_predictors._run.shapes import shape_of

from pytest_mlms.core.errors import MlmsError


class OnnxSignature(NamedTuple):
    """The inputs and outputs of a model, with None for free axes.

    A tensor that is no array of numbers has another type than numpy's, such as ``string``.
    """

    inputs: list[Tensor]
    outputs: list[Tensor]


def read_signature(path: Path) -> OnnxSignature:
    """Return the signature of the model at ``path``.

    Raises MlmsError for a file that is no model, and ImportError without onnx.
    """
    import onnx
    from google.protobuf.message import DecodeError

    try:
        graph = onnx.load(str(path), load_external_data=False).graph
    except (DecodeError, OSError) as error:
        problem = f"{path} is not an ONNX model ({error})"
        raise MlmsError(f"{problem}; name one that onnx.checker accepts") from error
    weights = {tensor.name for tensor in graph.initializer}
    inputs = [value for value in graph.input if value.name not in weights]
    return OnnxSignature(_tensors(inputs), _tensors(graph.output))


def _tensors(values: Iterable[Any]) -> list[Tensor]:
    return [Tensor(value.name, _dtype(value.type), _shape(value.type)) for value in values]


def _dtype(kind: Any) -> str:
    """Return numpy's name of a type, "" for none, or ONNX's for what is no array of numbers."""
    from onnx import TensorProto

    from pytest_mlms.measure.structure.onnx_shapes import dtype_of

    name = str(kind.WhichOneof("value"))
    if name != "tensor_type":
        return name.removesuffix("_type")
    number = kind.tensor_type.elem_type
    if number == TensorProto.STRING:
        return "string"
    return dtype_of(number)


def _shape(kind: Any) -> tuple[int | None, ...]:
    """Return the shape of a tensor, () where it isn't known."""
    sizes = []
    for axis in kind.tensor_type.shape.dim:
        sizes.append(axis.dim_value if axis.HasField("dim_value") else None)
    return shape_of(sizes)
