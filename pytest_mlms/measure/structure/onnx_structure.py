"""An ONNX graph as a Structure, with the graphs inside of its nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mlms_predictors import Operation, Structure, Tensor

from pytest_mlms.measure.structure.onnx_operations import operations_of, subgraphs
from pytest_mlms.measure.structure.onnx_shapes import dtype_of

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
