"""An ONNX graph as a Structure, with the graphs inside of its nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mlms_predictors import Operation, Structure, Tensor

from pytest_mlms.structure.onnx_operations import operations_of, subgraphs
from pytest_mlms.structure.onnx_shapes import dtype_of

__all__ = ["structure_of"]

_BUFFERS = {
    "BatchNormalization": (3, 4),
    "DequantizeLinear": (1, 2),
    "QGemm": (1, 2, 4, 5, 7, 8),
    "QLinearConv": (1, 2, 4, 5, 6, 7),
    "QLinearMatMul": (1, 2, 4, 5, 6, 7),
    "QuantizeLinear": (1, 2),
}
"""The inputs that are statistics, scales or zero points, by the type of a node."""


def structure_of(
    graph: Any, inputs: Sequence[str], tensors: Mapping[str, Tensor], counter: str
) -> Structure:
    """Return a graph as a Structure; ``tensors`` are those whose shape is known.

    The weights of graphs inside of a node (If, Loop, Scan) are read by that node. Scales, zero
    points and the statistics of normalizations are buffers.
    """
    layers = []
    inner: dict[str, Tensor] = {}
    for index, node in enumerate(graph.node):
        name = node.name or f"{node.op_type}_{index}"  # as ONNX Runtime names it
        reads = [read for read in node.input if read]
        for body in subgraphs(node):
            weights = _weights_inside(body, f"{name}/")
            inner.update(weights)
            reads += [*_reads_of_outside(body), *weights]
        writes = [written for written in node.output if written]
        flops = operations_of(node, tensors)
        layers.append(Operation(name, node.op_type, flops, reads, writes))
    outputs = [value.name for value in graph.output]
    known = [*tensors.values(), *inner.values()]
    buffers = [name for node in graph.node for name in _buffers_of(node)]
    return Structure(layers, known, list(inputs), outputs, counter, buffers)


def _buffers_of(node: Any) -> list[str]:
    """Return the inputs of a node that are not learned where they are weights."""
    places = _BUFFERS.get(node.op_type, ())
    return [name for place, name in enumerate(node.input) if place in places]


def _weights_inside(body: Any, prefix: str) -> dict[str, Tensor]:
    """Return the weights of a graph inside of a node, and of those inside of it, by new names."""
    weights = {}
    for tensor in body.initializer:
        name = f"{prefix}{body.name}/{tensor.name}"
        weights[name] = Tensor(name, dtype_of(tensor.data_type), tuple(tensor.dims))
    for node in body.node:
        for deeper in subgraphs(node):
            weights.update(_weights_inside(deeper, f"{prefix}{body.name}/"))
    return weights


def _reads_of_outside(body: Any) -> list[str]:
    """Return the tensors of the graph around it that a graph inside of a node reads."""
    own = {value.name for value in (*body.input, *body.initializer)}
    reads = []
    for node in body.node:
        names = list(node.input)
        for deeper in subgraphs(node):
            names += _reads_of_outside(deeper)
        reads += [name for name in names if name and name not in own]
        own.update(node.output)
    reads += [value.name for value in body.output if value.name not in own]
    return reads
