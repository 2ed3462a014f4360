"""The structure of an MXNet symbol: its nodes, with the shapes and types that MXNet infers."""

import json
from typing import Any, List, Set

import mxnet
import numpy
from mlms_predictors import Operation, Shapes, Structure, Tensor
from mlms_predictors._run.products import (
    contraction,
    convolution,
    count,
    matrix_products,
    transposed_convolution,
)

_FORMULAS = {
    "Convolution": convolution,
    "Convolution_v1": convolution,
    "Deconvolution": transposed_convolution,
    "FullyConnected": contraction,
    "_np_dot": contraction,
    "_npi_matmul": matrix_products,
    "batch_dot": matrix_products,
    "dot": contraction,
}


def structure(symbol: Any, weights: Set[str], inputs: List[Tensor], shapes: Shapes) -> Structure:
    """Return the Structure of a symbol for inputs of these shapes.

    ``weights`` are the names of what was loaded, states too.
    """
    inner = symbol.get_internals()
    graph = json.loads(inner.tojson())  # its heads are the outputs of all nodes
    tensors = _tensors(inner, graph["heads"], inputs, shapes)
    layers = []
    fed = []
    for number, node in enumerate(graph["nodes"]):
        if node["op"] != "null":
            heads = [head for head in graph["heads"] if head[0] == number]
            writes = [_name(head) for head in heads]
            layers.append(_operation(node, writes, tensors))
        elif node["name"] not in weights:
            fed.append(_name((number, 0)))
    heads = json.loads(symbol.tojson())["heads"]
    return Structure(
        layers=layers,
        tensors=list(tensors.values()),
        inputs=fed,
        outputs=[_name(head) for head in heads],
        counter="the shapes that MXNet %s infers" % mxnet.__version__,
    )


def _tensors(inner, heads, inputs, shapes):
    """Return the outputs of all nodes by name, without those that MXNet cannot infer."""
    dtypes = {tensor.name: tensor.dtype for tensor in inputs}
    found_shapes = inner.infer_shape_partial(**shapes)[1]
    found_types = inner.infer_type_partial(**dtypes)[1]
    tensors = {}
    for head, shape, dtype in zip(heads, found_shapes, found_types):
        is_known = shape and min(shape) > 0 and dtype is not None
        if is_known:
            name = _name(head)
            kind = numpy.dtype(dtype).name
            tensors[name] = Tensor(name, kind, tuple(shape))
    return tensors


def _operation(node, writes, tensors):
    reads = [_name(entry) for entry in node["inputs"]]
    shapes: List[Any] = []
    for name in reads[:2] + writes[:1]:
        shapes.append(tensors[name].shape if name in tensors else None)
    flops = count(node["op"], _FORMULAS, shapes)
    return Operation(node["name"], node["op"], flops, reads, writes)


def _name(entry):
    """Return a tensor's name: the number of its node, and which of the node's outputs it is."""
    node, output = entry[:2]
    return "%d.%d" % (node, output)
