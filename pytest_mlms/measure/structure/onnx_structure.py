"""An ONNX model's signature, its graph with those inside of its nodes as a Structure, and its cost.

Shapes are those of onnx's own inference. Only the functions import onnx.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from mlms_predictors import Operation, Structure, Tensor
from mlms_predictors._run.shapes import shape_of

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.extras import install
from pytest_mlms.measure.structure.cost import ModelCost, bound_shape, cost_of
from pytest_mlms.measure.structure.onnx_operations import operations_of, subgraphs

_BUFFERS = {
    "BatchNormalization": (3, 4),
    "ConvInteger": (2, 3),
    "DequantizeLinear": (1, 2),
    "DynamicQuantizeMatMul": (2, 3),
    "MatMulInteger": (2, 3),
    "MatMulIntegerToFloat": (2, 3, 4, 5),
    "MatMulNBits": (2, 3),
    "QGemm": (1, 2, 4, 5, 7, 8),
    "QLinearConv": (1, 2, 4, 5, 6, 7),
    "QLinearMatMul": (1, 2, 4, 5, 6, 7),
    "QuantizeLinear": (1, 2),
}
"""The inputs that are statistics, scales or zero points, by the type of a node."""

_LEARNED = {"DequantizeLinear": (0,), "QGemm": (6,), "QLinearConv": (8,)}
"""The inputs that are quantized weights or biases, whatever their type, by the type of a node."""


def structure_of(
    graph: Any, inputs: Sequence[str], tensors: Mapping[str, Tensor], counter: str
) -> Structure:
    """Return a graph as a Structure; ``tensors`` are those whose shape is known.

    The weights of graphs inside of a node (If, Loop, Scan) are read by that node. Scales, zero
    points and the statistics of normalizations are buffers. Quantized biases are learned: they are
    int32, as indices are.
    """
    layers = []
    inner: dict[str, Tensor] = {}
    for index, node in enumerate(graph.node):
        name = node.name or f"{node.op_type}_{index}"  # as ONNX Runtime names it
        reads = [read for read in node.input if read]
        for body in subgraphs(node):
            weights = _weights_inside(body, f"{name}/")
            inner.update(weights)
            reads += [*reads_of_outside(body), *weights]
        writes = [written for written in node.output if written]
        flops = operations_of(node, tensors)
        layers.append(Operation(name, node.op_type, flops, reads, writes))
    outputs = [value.name for value in graph.output]
    known = [*tensors.values(), *inner.values(), *_unpacked_weights(graph)]
    buffers = [*_inputs_at(_BUFFERS, graph), *_dynamic_scales(graph)]
    learned = _inputs_at(_LEARNED, graph)
    return Structure(layers, known, list(inputs), outputs, counter, buffers, learned)


def _inputs_at(places: Mapping[str, Sequence[int]], graph: Any) -> list[str]:
    """Return the inputs of nodes at some places, by the type of the node."""
    names = []
    for node in graph.node:
        for place in places.get(node.op_type, ()):
            names += node.input[place : place + 1]
    return names


def _dynamic_scales(graph: Any) -> list[str]:
    """Return what is multiplied by the scale of an activation: the scales of weights."""
    scales = set()
    for node in graph.node:
        if node.op_type == "DynamicQuantizeLinear":
            scales.add(node.output[1])
    names = []
    for node in graph.node:
        if node.op_type == "Mul" and scales.intersection(node.input):
            names += node.input
    return names


def _unpacked_weights(graph: Any) -> list[Tensor]:
    """Return the weights of MatMulNBits as the K x N numbers that are packed into their bytes."""
    weights = []
    for node in graph.node:
        if node.op_type == "MatMulNBits":
            sizes = {attribute.name: attribute.i for attribute in node.attribute}
            shape = (sizes["N"], sizes["K"])
            weights.append(Tensor(node.input[1], f"uint{sizes.get('bits', 4)}", shape))
    return weights


def _weights_inside(body: Any, prefix: str) -> dict[str, Tensor]:
    """Return the weights of a graph inside of a node, and of those inside of it, by new names."""
    from pytest_mlms.measure.structure.onnx_shapes import dtype_of

    weights = {}
    for tensor in body.initializer:
        name = f"{prefix}{body.name}/{tensor.name}"
        weights[name] = Tensor(name, dtype_of(tensor.data_type), tuple(tensor.dims))
    for node in body.node:
        for deeper in subgraphs(node):
            weights.update(_weights_inside(deeper, f"{prefix}{body.name}/"))
    return weights


def reads_of_outside(body: Any) -> list[str]:
    """Return the tensors of the graph around it that a graph inside of a node reads."""
    own = {value.name for value in (*body.input, *body.initializer)}
    reads = []
    for node in body.node:
        names = list(node.input)
        for deeper in subgraphs(node):
            names += reads_of_outside(deeper)
        reads += [name for name in names if name and name not in own]
        own.update(node.output)
    reads += [value.name for value in body.output if value.name not in own]
    return reads


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
    return OnnxSignature(_tensors(_inputs_of(graph)), _tensors(graph.output))


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
