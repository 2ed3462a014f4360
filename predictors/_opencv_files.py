"""What ONNX files and Caffe's prototxt say of inputs and outputs, since OpenCV reads them and
doesn't tell.

ONNX: a walk over its protobuf by the field numbers of onnx.proto3
(https://github.com/onnx/onnx/blob/main/onnx/onnx.proto3), past the weights, so a file of any size
takes milliseconds.
"""

import itertools
import mmap
import re

from mlms_predictors import Tensor

_TYPES = {
    1: "float32",
    2: "uint8",
    3: "int8",
    4: "uint16",
    5: "int16",
    6: "int32",
    7: "int64",
    9: "bool",
}
_TYPES.update({10: "float16", 11: "float64", 12: "uint32", 13: "uint64"})


def onnx_signature(path):
    """Return inputs (without the weights) and outputs as lists of Tensors.

    Raises ValueError where it is no ONNX.
    """
    try:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            graph = _one(data, 7)
            weights = {bytes(_one(tensor, 8)).decode() for tensor in _all(graph, 5)}
            inputs, outputs = (
                [_tensor(value) for value in _all(graph, field)] for field in (11, 12)
            )
    except (ValueError, IndexError, UnicodeDecodeError, TypeError):
        raise ValueError("%s is no ONNX file" % path) from None
    return [tensor for tensor in inputs if tensor.name not in weights], outputs


def caffe_inputs(path):
    """Return a prototxt's inputs as Tensors, the first axis free.

    Raises ValueError where it is none.
    """
    try:
        with open(path, encoding="utf-8") as file:
            net = _message(_tokens(file.read()))
    except ValueError:
        raise ValueError("%s is no prototxt of Caffe" % path) from None
    names = net.get("input", [])
    shapes = [shape["dim"] for shape in net.get("input_shape", [])] or _groups(
        net.get("input_dim", []), 4
    )
    for layer in net.get("layer", []) + net.get("layers", []):
        if layer.get("type") == ["Input"]:
            names = names + layer.get("top", [])
            shapes = shapes + [
                shape["dim"]
                for form in layer.get("input_param", [])
                for shape in form.get("shape", [])
            ]
    if not names or len(names) != len(shapes):
        raise ValueError(
            "%s says no shapes of its inputs; give it a layer of type Input, as deploy files have"
            % path
        )
    return [
        Tensor(name, "float32", (None,) + tuple(map(int, dims[1:])))
        for name, dims in zip(names, shapes)
    ]


_TOKEN = re.compile(
    r'#[^\n]*|(?P<string>"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\')|(?P<brace>[{}])|(?P<word>[^\s{}:,;"\'#]+)'
)


def _tokens(text):
    """Yield (kind, text) of each string, brace and word.

    Comments and marks between them are passed over.
    """
    for match in _TOKEN.finditer(text):
        if match.lastgroup:
            yield match.lastgroup, match.group()


def _message(tokens, nested=False):
    """Read ``key: value`` and ``key { … }`` until the brace that ends it; every key has a list."""
    found = {}
    for kind, name in tokens:
        if name == "}" and nested:
            return found
        if kind != "word":
            raise ValueError("a value without a name")
        form, text = next(tokens, ("", ""))
        if text == "}" or not form:
            raise ValueError("a name without a value")
        value = (
            _message(tokens, True) if form == "brace" else text[1:-1] if form == "string" else text
        )
        found.setdefault(name, []).append(value)
    if nested:
        raise ValueError("cut short")
    return found


def _groups(values, size):
    return [list(group) for group in itertools.zip_longest(*[iter(values)] * size)]


def _tensor(value):
    form = _one(_one(value, 2), 1)
    axes = [_all(axis, 1) for axis in _all(_one(form, 2), 1)] if _all(form, 2) else []
    return Tensor(
        bytes(_one(value, 1)).decode(),
        _TYPES[_one(form, 1)],
        tuple(a[0] if a else None for a in axes),
    )


def _one(message, number):
    return _all(message, number)[-1]


def _all(message, number):
    return [value for field, value in _fields(message) if field == number]


def _fields(message):
    """Yield (number, value) of each field: an int, or the bytes of what has a length."""
    place = 0
    while place < len(message):
        key, place = _varint(message, place)
        if key & 7 == 0:
            value, place = _varint(message, place)
        elif key & 7 == 2:
            size, place = _varint(message, place)
            value, place = message[place : place + size], place + size
        else:
            value, place = None, place + {1: 8, 5: 4}.get(key & 7, len(message) + 1)
        if place > len(message):
            raise ValueError("cut short")
        yield key >> 3, value


def _varint(message, place):
    value = shift = 0
    while True:
        byte = message[place]
        value |= (byte & 127) << shift
        place, shift = place + 1, shift + 7
        if byte < 128:
            return value, place
