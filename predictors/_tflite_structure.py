"""The structure of a .tflite file's first graph: its operators, with the shapes of what has run."""

from typing import Any, Callable, Dict, Iterable, List, NamedTuple

import numpy
from mlms_predictors import Operation, Structure, Tensor
from mlms_predictors._run.products import (
    contraction,
    convolution,
    count,
    matrix_products,
    transposed_convolution,
)

_FORMULAS = {
    "BATCH_MATMUL": matrix_products,
    "CONV_2D": convolution,
    "CONV_3D": convolution,
    "CONV_3D_TRANSPOSE": transposed_convolution,
    "DEPTHWISE_CONV_2D": convolution,
    "FULLY_CONNECTED": contraction,
    "TRANSPOSE_CONV": transposed_convolution,
}
_KERNEL_REVERSED = ("CONV_3D", "CONV_3D_TRANSPOSE", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV")
"""Operators whose kernels have the axis last that formulas have first."""
_TRANSPOSED = ("CONV_3D_TRANSPOSE", "TRANSPOSE_CONV")
"""Operators that read the shape of their output, the kernel and the source, in this order."""


class Graph(NamedTuple):
    """The graph of an interpreter without delegates.

    ``inputs`` and ``outputs`` are indices of tensors.
    """

    operators: List[Dict[str, Any]]
    tensors: List[Dict[str, Any]]
    inputs: List[int]
    outputs: List[int]


def structure(
    graph: Graph, distinct: Callable[[Iterable[str]], List[str]], counter: str
) -> Structure:
    """Return the Structure of a graph; ``distinct`` makes distinct names of any names."""
    details = {facts["index"]: facts for facts in graph.tensors}
    names = distinct(_name(op, details) for op in graph.operators)
    layers = []
    for name, op in zip(names, graph.operators):
        operation = Operation(
            name=name,
            type=op["op_name"],
            flops=_flops(op, details),
            reads=_keys(op["inputs"]),
            writes=_keys(op["outputs"]),
        )
        layers.append(operation)
    return Structure(
        layers=layers,
        tensors=[_tensor(facts) for facts in graph.tensors],
        inputs=_keys(graph.inputs),
        outputs=_keys(graph.outputs),
        counter=counter,
    )


def _name(op, details):
    """Return the name of an operator's first output, or else its type."""
    for index in op["outputs"][:1]:
        if index in details and details[index]["name"]:
            return str(details[index]["name"])
    return str(op["op_name"])


def _flops(op, details):
    """Return an operator's operations, by the shapes of source, kernel and output."""
    kind = op["op_name"]
    operands = [index for index in op["inputs"] if index >= 0]
    if kind in _TRANSPOSED:
        operands = operands[2:0:-1]
    shapes: List[Any] = []
    for index in [*operands[:2], *op["outputs"][:1]]:
        shapes.append(_shape(details[index]) if index in details else None)
    if kind in _KERNEL_REVERSED and shapes[1]:
        shapes[1] = shapes[1][::-1]
    return count(kind, _FORMULAS, shapes)


def _keys(indices):
    """Return the names of tensors in the Structure; an index below zero is an input left out."""
    return [str(index) for index in indices if index >= 0]


def _tensor(facts):
    dtype = numpy.dtype(facts["dtype"]).name
    return Tensor(str(facts["index"]), dtype, _shape(facts))


def _shape(facts):
    return tuple(int(size) for size in facts["shape"])
