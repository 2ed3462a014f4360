"""A predictor of ONNX files in plain numpy, which fails at operators that a variable names.

MLMS_FAILS is "KIND OPERATOR [OPERATOR]": wrong (its output is 0.5 off), seldom (so in one call of
three), fused (the second is 0.5
off where it alone reads the first, which is no output), dies, refuses, or slow.
"""

import itertools
import os
import time

import numpy
import onnx
from mlms_predictors import Loaded, Tensor
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

KIND, *OPERATORS = os.environ.get("MLMS_FAILS", "nothing").split()
SECONDS = 0.004


def versions():
    return {"operators": "1.0", "onnx": onnx.__version__}


def devices():
    return ["cpu"]


def load(request):
    model = onnx.load(request.files["graph"])
    types = [node.op_type for node in model.graph.node]
    if KIND == "refuses" and set(OPERATORS) <= set(types):
        raise NotImplementedError("no kernel for %s" % OPERATORS[0])
    inputs = [_tensor(value) for value in model.graph.input]
    outputs = [_tensor(value) for value in model.graph.output]
    evaluators = [ReferenceEvaluator(onnx.load(request.files["graph"]))] * 2
    _make_wrong(model.graph)
    evaluators.append(ReferenceEvaluator(model))
    calls = itertools.count(0 if KIND == "seldom" else 2, 1 if KIND == "seldom" else 0)
    loaded = ((evaluators, calls), [tensor.name for tensor in outputs], types)
    return Loaded(loaded, request.device, request.threads, inputs, outputs)


def predict(loaded, arrays):
    (evaluators, calls), names, types = loaded.model
    if KIND == "dies" and set(OPERATORS) <= set(types):
        os._exit(3)
    if KIND == "slow" and OPERATORS[0] in types:
        time.sleep(SECONDS * types.count(OPERATORS[0]))
    return evaluators[next(calls) % 3].run(names, dict(arrays))


def _tensor(value):
    kind = value.type.tensor_type
    shape = [axis.dim_value or None for axis in kind.shape.dim]
    dtype = helper.tensor_dtype_to_np_dtype(kind.elem_type)
    return Tensor(value.name, numpy.dtype(dtype).name, tuple(shape))


def _make_wrong(graph):
    """Add 0.5 to the outputs of operators, behind a name of their own."""
    nodes = []
    for node in list(graph.node):
        if _is_wrong(node, graph):
            right = "right " + node.output[0]
            nodes.append(helper.make_node("Add", [right, "half"], [node.output[0]]))
            node.output[0] = right
            nodes.insert(-1, node)
        else:
            nodes.append(node)
    del graph.node[:]
    graph.node.extend(nodes)
    graph.initializer.append(numpy_helper.from_array(numpy.array(0.5, numpy.float32), "half"))


def _is_wrong(node, graph):
    if KIND in ("wrong", "seldom"):
        return node.op_type in OPERATORS
    if KIND != "fused" or node.op_type != OPERATORS[1]:
        return False
    outputs = [value.name for value in graph.output]
    for other in graph.node:
        is_first = other.op_type == OPERATORS[0] and other.output[0] in node.input
        if is_first and other.output[0] not in outputs:
            return True
    return False
