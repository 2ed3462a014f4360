"""What a .tflite file's first graph is made of.

Its operators as the file has them, with the shapes of what has run.
"""

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
_KERNEL_ENDS = ("CONV_3D", "CONV_3D_TRANSPOSE", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV")
"""Their kernels have last what formulas have first."""


def structure(interpreter, distinct, inputs, outputs, counter):
    """Return the Structure of an interpreter's graph, which has no delegates.

    ``distinct`` makes names so.
    """
    tensors = {facts["index"]: facts for facts in interpreter.get_tensor_details()}
    operators = interpreter._get_ops_details()
    names = distinct(_name(op, tensors) for op in operators)
    layers = [
        Operation(
            name, op["op_name"], _flops(op, tensors), _keys(op["inputs"]), _keys(op["outputs"])
        )
        for name, op in zip(names, operators)
    ]
    return Structure(
        layers,
        [_tensor(facts) for facts in tensors.values()],
        _keys(inputs),
        _keys(outputs),
        counter,
    )


def _name(op, tensors):
    first = tensors.get(next(iter(op["outputs"]), None))
    return (first and first["name"]) or op["op_name"]


def _flops(op, tensors):
    """Return an operator's operations.

    A transposed convolution reads its output's shape, kernel and source.
    """
    kind, read = op["op_name"], [index for index in op["inputs"] if index >= 0]
    operands = read[2:0:-1] if kind in ("CONV_3D_TRANSPOSE", "TRANSPOSE_CONV") else read
    places = [*operands[:2], *op["outputs"][:1]]
    shapes = [_shape(tensors[index]) if index in tensors else None for index in places]
    if kind in _KERNEL_ENDS and shapes[1]:
        shapes[1] = shapes[1][::-1]
    return count(kind, _FORMULAS, shapes)


def _keys(indices):
    return [str(index) for index in indices if index >= 0]


def _tensor(facts):
    return Tensor(str(facts["index"]), numpy.dtype(facts["dtype"]).name, _shape(facts))


def _shape(facts):
    return tuple(int(size) for size in facts["shape"])
