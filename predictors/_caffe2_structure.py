"""What a net of Caffe2 is made of.

Its operators, with shapes that Caffe2 itself infers, or has after a run.
"""

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
}
_NUMBERS.update({"float16": 12, "float64": 13})
_DTYPES = {number: dtype for dtype, number in _NUMBERS.items()}
"""Types as TensorProto in caffe2.proto numbers them."""


def structure(named, inputs, outputs, blobs):
    """Return the Structure of ``named`` operators.

    ``inputs`` are tensors, ``blobs`` those of the workspace.
    """
    operators, names = [op for _, op in named], [tensor.name for tensor in inputs]
    made = {name for op in operators for name in op.output}
    weights = {name for op in operators for name in op.input} - made - set(names)
    arrays = {name: blobs[name].fetch() for name in sorted(weights) if blobs[name].is_tensor()}
    known = inputs + [Tensor(name, array.dtype.name, array.shape) for name, array in arrays.items()]
    tensors = {tensor.name: tensor for tensor in _inferred(operators, known)}
    if not made <= set(tensors) and weights == set(arrays):
        tensors.update(_ran(operators, inputs, arrays))
    layers = [
        Operation(name, op.type, _flops(op, tensors), list(op.input), list(op.output))
        for name, op in named
    ]
    counter = "the shapes that Caffe2 of PyTorch %s tells" % torch.__version__.partition("+")[0]
    return Structure(layers, list(tensors.values()), names, outputs, counter)


def _inferred(operators, known):
    """Yield the tensors whose shape and type Caffe2 can tell from those that are known."""
    net, found = caffe2_pb2.NetDef(op=operators), caffe2_pb2.TensorShapes()
    known = [tensor for tensor in known if tensor.dtype in _NUMBERS]
    shapes = {tensor.name: list(tensor.shape) for tensor in known}
    types = {tensor.name: _NUMBERS[tensor.dtype] for tensor in known}
    found.ParseFromString(
        workspace.C.infer_shapes_and_types_from_map([net.SerializeToString()], shapes, types)
    )
    for one in found.shapes:
        if not one.unknown_shape and one.data_type in _DTYPES:
            yield Tensor(one.name, _DTYPES[one.data_type], tuple(one.dims))


def _ran(operators, inputs, arrays):
    """Return all tensors by a run on zeros, in a workspace of its own.

    Caffe2 infers nothing for some operators.
    """
    before = workspace.CurrentWorkspace()
    workspace.SwitchWorkspace("mlms-structure", True)
    try:
        for name, array in arrays.items():
            workspace.FeedBlob(name, array)
        for tensor in inputs:
            workspace.FeedBlob(tensor.name, numpy.zeros(tensor.shape, tensor.dtype))
        workspace.RunNetOnce(caffe2_pb2.NetDef(op=operators))
        there = workspace.C.Workspace.current.blobs
        found = {name: blob.fetch() for name, blob in there.items() if blob.is_tensor()}
        return {name: Tensor(name, array.dtype.name, array.shape) for name, array in found.items()}
    finally:
        workspace.ResetWorkspace()
        workspace.SwitchWorkspace(before)


def _flops(op, tensors):
    names = list(op.input[:2]) + list(op.output[:1])
    return count(
        op.type, _FORMULAS, [tensors[name].shape if name in tensors else None for name in names]
    )
