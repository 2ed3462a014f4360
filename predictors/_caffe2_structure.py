"""The structure of a Caffe2 net: its operators, with the shapes that Caffe2 infers or computes."""

from typing import Any, List, Set, Tuple

import numpy
import torch
from caffe2.proto import caffe2_pb2
from caffe2.python import workspace
from mlms_predictors import Operation, Structure, Tensor
from mlms_predictors._run.products import (
    contraction,
    convolution,
    count,
    matrix_products,
    transposed_convolution,
)

_FORMULAS = {
    "BatchMatMul": matrix_products,
    "Conv": convolution,
    "Conv1D": convolution,
    "Conv2D": convolution,
    "Conv3D": convolution,
    "ConvRelu": convolution,
    "ConvTranspose": transposed_convolution,
    "FC": contraction,
    "FCTransposed": contraction,
    "MatMul": contraction,
}
_NUMBERS = {
    "float32": 1,
    "int32": 2,
    "bool": 5,
    "uint8": 6,
    "int8": 7,
    "uint16": 8,
    "int16": 9,
    "int64": 10,
    "float16": 12,
    "float64": 13,
}
"""Types as TensorProto in caffe2.proto numbers them."""
_DTYPES = {number: dtype for dtype, number in _NUMBERS.items()}


def structure(
    named: List[Tuple[str, Any]], inputs: List[Tensor], outputs: List[str], blobs: Any
) -> Structure:
    """Return the Structure of operators, which are (name, OperatorDef) pairs.

    ``blobs`` are those of the workspace, where the weights are.
    """
    tensors = _tensors([op for _, op in named], inputs, blobs)
    layers = []
    for name, op in named:
        flops = _flops(op, tensors)
        reads = list(op.input)
        writes = list(op.output)
        layers.append(Operation(name, op.type, flops, reads, writes))
    version = torch.__version__.partition("+")[0]
    return Structure(
        layers=layers,
        tensors=list(tensors.values()),
        inputs=[tensor.name for tensor in inputs],
        outputs=outputs,
        counter="the shapes that Caffe2 of PyTorch %s tells" % version,
    )


def _tensors(operators, inputs, blobs):
    """Return all tensors by name: inferred, or else of a run, as some operators have no inference.

    The operators cannot run apart from their workspace where a weight is no tensor.
    """
    written: Set[str] = set()
    read: Set[str] = set()
    for op in operators:
        written.update(op.output)
        read.update(op.input)
    weights = read - written - {tensor.name for tensor in inputs}
    arrays = _arrays(sorted(weights), blobs)
    known = list(inputs)
    for name, array in arrays.items():
        known.append(_tensor(name, array))
    tensors = _inferred(operators, known)
    can_run = weights == set(arrays)
    if can_run and not written <= set(tensors):
        tensors.update(_ran(operators, inputs, arrays))
    return tensors


def _arrays(names, blobs):
    """Return the arrays of those blobs that are tensors."""
    tensors = [name for name in names if blobs[name].is_tensor()]
    return {name: blobs[name].fetch() for name in tensors}


def _inferred(operators, known):
    """Return the tensors whose shape and type Caffe2 can tell from those that are known."""
    net = caffe2_pb2.NetDef(op=operators)
    shapes = {}
    types = {}
    for tensor in known:
        if tensor.dtype in _NUMBERS:
            shapes[tensor.name] = list(tensor.shape)
            types[tensor.name] = _NUMBERS[tensor.dtype]
    infer = workspace.C.infer_shapes_and_types_from_map
    reply = caffe2_pb2.TensorShapes()
    reply.ParseFromString(infer([net.SerializeToString()], shapes, types))
    found = {}
    for one in reply.shapes:
        if not one.unknown_shape and one.data_type in _DTYPES:
            dtype = _DTYPES[one.data_type]
            found[one.name] = Tensor(one.name, dtype, tuple(one.dims))
    return found


def _ran(operators, inputs, arrays):
    """Return all tensors of a run on zeros, in a workspace of its own."""
    before = workspace.CurrentWorkspace()
    workspace.SwitchWorkspace("mlms-structure", True)
    try:
        for name, array in arrays.items():
            workspace.FeedBlob(name, array)
        for tensor in inputs:
            zeros = numpy.zeros(tensor.shape, tensor.dtype)
            workspace.FeedBlob(tensor.name, zeros)
        workspace.RunNetOnce(caffe2_pb2.NetDef(op=operators))
        blobs = workspace.C.Workspace.current.blobs
        found = _arrays(list(blobs), blobs)
        return {name: _tensor(name, array) for name, array in found.items()}
    finally:
        workspace.ResetWorkspace()
        workspace.SwitchWorkspace(before)


def _tensor(name, array):
    return Tensor(name, array.dtype.name, array.shape)


def _flops(op, tensors):
    """Return an operator's operations, by the shapes of two inputs and of its first output."""
    shapes: List[Any] = []
    for name in [*op.input[:2], *op.output[:1]]:
        shapes.append(tensors[name].shape if name in tensors else None)
    return count(op.type, _FORMULAS, shapes)
