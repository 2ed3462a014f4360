"""Signatures of ONNX files and Caffe's prototxt files, which OpenCV reads without showing them.

ONNX: a walk over the file by the field numbers of onnx.proto3
(https://github.com/onnx/onnx/blob/main/onnx/onnx.proto3). It passes over the weights, so a file of
any size takes milliseconds.
"""

import mmap
import re
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from mlms_predictors import Tensor
from mlms_predictors._run.protobuf import last_value, values

# Field numbers of onnx.proto3
_MODEL_GRAPH = 7
_GRAPH_WEIGHT = 5
_GRAPH_INPUT = 11
_GRAPH_OUTPUT = 12
_WEIGHT_NAME = 8
_VALUE_NAME = 1
_VALUE_TYPE = 2
_TYPE_TENSOR = 1
_TENSOR_DTYPE = 1
_TENSOR_SHAPE = 2
_SHAPE_AXIS = 1
_AXIS_SIZE = 1

_DTYPES = {
    1: "float32",
    2: "uint8",
    3: "int8",
    4: "uint16",
    5: "int16",
    6: "int32",
    7: "int64",
    9: "bool",
    10: "float16",
    11: "float64",
    12: "uint32",
    13: "uint64",
}
"""Types as onnx.proto3 numbers them."""

_TOKEN = re.compile(
    r"""
    \#[^\n]*
    | (?P<string> "(?:[^"\\]|\\.)*" | '(?:[^'\\]|\\.)*' )
    | (?P<brace> [{}] )
    | (?P<word> [^\s{}:,;"'#]+ )
    """,
    re.VERBOSE,
)

Signature = Tuple[List[Tensor], List[Tensor]]


class _Token(NamedTuple):
    kind: str
    text: str


def onnx_signature(path: str) -> Signature:
    """Return inputs (without the weights) and outputs as lists of Tensors.

    Raises ValueError where it is no ONNX.
    """
    try:
        with open(path, "rb") as file:
            return _mapped_signature(file.fileno())
    except (ValueError, KeyError, TypeError):
        raise ValueError("%s is no ONNX file" % path) from None


def _mapped_signature(descriptor):
    with mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ) as model:
        return _graph_signature(last_value(model, _MODEL_GRAPH))


def _graph_signature(graph):
    weights = set()
    for weight in values(graph, _GRAPH_WEIGHT):
        weights.add(_text(weight, _WEIGHT_NAME))
    inputs = []
    for value in values(graph, _GRAPH_INPUT):
        tensor = _tensor(value)
        if tensor.name not in weights:
            inputs.append(tensor)
    outputs = [_tensor(value) for value in values(graph, _GRAPH_OUTPUT)]
    return inputs, outputs


def _tensor(value):
    """Return a graph's input or output as a Tensor; one that says no shape has none."""
    kind = last_value(last_value(value, _VALUE_TYPE), _TYPE_TENSOR)
    dtype = _DTYPES[last_value(kind, _TENSOR_DTYPE)]
    sizes: List[Optional[int]] = []
    for shape in values(kind, _TENSOR_SHAPE)[-1:]:
        for axis in values(shape, _SHAPE_AXIS):
            sizes.append(_size(axis))
    return Tensor(_text(value, _VALUE_NAME), dtype, tuple(sizes))


def _size(axis):
    """Return an axis's size, None for one that is free: it has a name, or nothing."""
    sizes = values(axis, _AXIS_SIZE)
    return sizes[0] if sizes else None


def _text(message, number):
    value = last_value(message, number)
    if isinstance(value, int):
        raise ValueError("field %d is a number" % number)
    return bytes(value).decode()


def caffe_inputs(path: str) -> List[Tensor]:
    """Return a prototxt's inputs as Tensors, the first axis free.

    Raises ValueError where it is none.
    """
    try:
        with open(path, encoding="utf-8") as file:
            net = _read_message(_tokens(file.read()))
    except ValueError:
        raise ValueError("%s is no prototxt of Caffe" % path) from None
    names = list(net.get("input", []))
    shapes = _declared_shapes(net)
    for layer in net.get("layer", []) + net.get("layers", []):
        if layer.get("type") == ["Input"]:
            names += layer.get("top", [])
            shapes += _layer_shapes(layer)
    if not names or len(names) != len(shapes):
        advice = "give it a layer of type Input, as deploy files have"
        raise ValueError("%s says no shapes of its inputs; %s" % (path, advice))
    return [_caffe_tensor(name, sizes) for name, sizes in zip(names, shapes)]


def _caffe_tensor(name, sizes):
    rest = [int(size) for size in sizes[1:]]
    return Tensor(name, "float32", (None, *rest))


def _declared_shapes(net):
    """Return the shapes of a net that has them beside its layers, in either of two ways."""
    if "input_shape" in net:
        return [shape["dim"] for shape in net["input_shape"]]
    sizes = list(net.get("input_dim", []))
    shapes = []
    while sizes:
        shapes.append(sizes[:4])
        del sizes[:4]
    return shapes


def _layer_shapes(layer):
    """Return the shapes that a layer of type Input has."""
    shapes = []
    for parameter in layer.get("input_param", []):
        for shape in parameter.get("shape", []):
            shapes.append(shape["dim"])
    return shapes


def _tokens(text):
    """Yield each string, brace and word; comments and marks between them are passed over."""
    for match in _TOKEN.finditer(text):
        if match.lastgroup:
            yield _Token(match.lastgroup, match.group())


def _read_message(tokens, nested=False):
    """Read ``key: value`` and ``key { … }`` until the brace that ends it; every key has a list."""
    found: Dict[str, List[Any]] = {}
    for token in tokens:
        if nested and token.text == "}":
            return found
        if token.kind != "word":
            raise ValueError("a value without a name")
        value = _read_value(tokens)
        found.setdefault(token.text, []).append(value)
    if nested:
        raise ValueError("cut short")
    return found


def _read_value(tokens):
    token = next(tokens, None)
    if token is None or token.text == "}":
        raise ValueError("a name without a value")
    if token.kind == "brace":
        return _read_message(tokens, nested=True)
    if token.kind == "string":
        return token.text[1:-1]
    return token.text
