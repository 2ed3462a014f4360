"""What a symbol of MXNet is made of: its nodes, with shapes and types by MXNet's own inference."""

import json

import mxnet
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
    "Convolution": convolution,
    "Convolution_v1": convolution,
    "Deconvolution": transposed_convolution,
    "FullyConnected": contraction,
    "_np_dot": contraction,
    "_npi_matmul": matrix_products,
    "batch_dot": matrix_products,
    "dot": contraction,
}


def structure(symbol, weights, inputs, shapes):
    """Return the Structure of a symbol.

    ``weights`` are the names of what was loaded, states too.
    """
    inner = symbol.get_internals()
    graph = json.loads(inner.tojson())  # its heads are the outputs of all nodes
    found = inner.infer_shape_partial(**shapes)[1]
    types = inner.infer_type_partial(**{tensor.name: tensor.dtype for tensor in inputs})[1]
    tensors = {}
    for head, shape, dtype in zip(graph["heads"], found, types):
        if shape and all(size > 0 for size in shape) and dtype is not None:
            tensors[_name(head)] = Tensor(_name(head), numpy.dtype(dtype).name, tuple(shape))
    layers, fed = [], {}
    for number, node in enumerate(graph["nodes"]):
        if node["op"] != "null":
            layers.append(_operation(number, node, graph, tensors))
        elif node["name"] not in weights:
            fed[node["name"]] = _name((number, 0))
    heads = json.loads(symbol.tojson())["heads"]
    names = [_name(head) for head in heads]
    counter = "the shapes that MXNet %s infers" % mxnet.__version__
    return Structure(layers, list(tensors.values()), list(fed.values()), names, counter)


def _operation(number, node, graph, tensors):
    reads = [_name(entry) for entry in node["inputs"]]
    writes = [_name(head) for head in graph["heads"] if head[0] == number]
    shapes = [tensors[name].shape if name in tensors else None for name in reads[:2] + writes[:1]]
    return Operation(node["name"], node["op"], count(node["op"], _FORMULAS, shapes), reads, writes)


def _name(entry):
    return "%d.%d" % tuple(entry[:2])
