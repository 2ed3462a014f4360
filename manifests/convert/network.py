"""A plain CNN as a list of layers: read out of its ONNX file, for the scripts beside this that
write other formats.

    pip install onnx numpy
    python manifests/convert/network.py MODEL.onnx NETWORK.npz

Each ``to_FRAMEWORK.py`` takes NETWORK.npz, since a framework's own environment may not take onnx:
it needs numpy only, and Python 3.6 or later. What it writes is for the predictor of that name, with
the tensors' names of the ONNX file.

A plain CNN has one input, N x C x H x W, and one output, and each layer takes what the last one
gave: Conv with a bias and no groups, Relu, MaxPool that rounds down, Flatten, and Gemm as a dense
layer.
"""

import hashlib
import json
import os
import sys
from typing import Any, NamedTuple, Tuple

import numpy


class Layer(NamedTuple):
    """``kind`` is conv, relu, maxpool, flatten or dense; kernel, stride and pad are (height,
    width), 0 where unused.

    ``weight`` is outputs x inputs x height x width, or outputs x inputs. ``name`` is that of the
    tensor it makes.
    """

    name: str
    kind: str
    kernel: Tuple[int, int] = (0, 0)
    stride: Tuple[int, int] = (0, 0)
    pad: Tuple[int, int] = (0, 0)
    weight: Any = None
    bias: Any = None


class Network(NamedTuple):
    """``shape`` is of one input: channels, height, width.

    ``sizes`` are the shapes that each layer makes of it.
    """

    name: str
    input: str
    shape: Tuple[int, int, int]
    layers: Tuple[Layer, ...]

    @property
    def output(self):
        """The name of the last layer's tensor."""
        return self.layers[-1].name

    @property
    def sizes(self):
        """Return the shape after each layer, of one input."""
        shape, found = self.shape, []
        for layer in self.layers:
            shape = _after(layer, shape)
            found.append(shape)
        return found


def _after(layer, shape):
    if layer.kind == "flatten":
        return (int(numpy.prod(shape)),)
    if layer.kind == "dense":
        return (len(layer.weight),)
    if layer.kind == "relu":
        return shape
    height, width = (
        (size + 2 * pad - kernel) // stride + 1
        for size, pad, kernel, stride in zip(shape[1:], layer.pad, layer.kernel, layer.stride)
    )
    return (len(layer.weight) if layer.kind == "conv" else shape[0], height, width)


def load(path):
    """Return the network in an .npz file that ``save`` wrote."""
    with numpy.load(path) as file:
        facts = json.loads(str(file["facts"]))
        layers = []
        for fields in facts.pop("layers"):
            name = fields["name"]
            for key in ("kernel", "stride", "pad"):
                fields[key] = tuple(fields[key])
            if name + "_weight" in file.files:
                fields.update(weight=file[name + "_weight"], bias=file[name + "_bias"])
            layers.append(Layer(**fields))
    return Network(facts["name"], facts["input"], tuple(facts["shape"]), tuple(layers))


def save(network, path):
    """Write a network as plain arrays and one of JSON."""
    arrays = {}
    for layer in network.layers:
        if layer.weight is not None:
            arrays.update({layer.name + "_weight": layer.weight, layer.name + "_bias": layer.bias})
    plain = [
        {key: getattr(layer, key) for key in ("name", "kind", "kernel", "stride", "pad")}
        for layer in network.layers
    ]
    facts = {"name": network.name, "input": network.input, "shape": network.shape, "layers": plain}
    numpy.savez(path, facts=json.dumps(facts), **arrays)


def read_onnx(path):
    """Return the network in an ONNX file; raises ValueError for what is no plain CNN."""
    import onnx
    from onnx import numpy_helper

    graph = onnx.load(str(path)).graph
    arrays = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    (source,) = [value for value in graph.input if value.name not in arrays]
    flow, layers = source.name, []
    for node in graph.node:
        if node.input[0] != flow or len(node.output) != 1:
            raise ValueError(
                "%s %r does not take what the node before it gave" % (node.op_type, node.name)
            )
        flow = node.output[0]
        attributes = {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}
        layers.append(_layer(node, attributes, [arrays[name] for name in node.input[1:]]))
    shape = tuple(axis.dim_value for axis in source.type.tensor_type.shape.dim)[1:]
    return Network(graph.name, source.name, shape, tuple(layers))


def _layer(node, attributes, arrays):
    name, pair = node.output[0], (1, 1)
    if node.op_type in ("Relu", "Flatten"):
        return Layer(name, node.op_type.lower())
    if node.op_type == "Gemm" and attributes == {"transB": 1}:
        return Layer(name, "dense", weight=arrays[0], bias=arrays[1])
    pads = attributes.get("pads", [0] * 4)
    odd = set(attributes) - {"kernel_shape", "strides", "pads"} or pads[:2] != pads[2:]
    if (
        node.op_type not in ("Conv", "MaxPool")
        or odd
        or (node.op_type == "Conv" and len(arrays) != 2)
    ):
        raise ValueError(
            "%s %r is not what a plain CNN has: %s" % (node.op_type, node.name, sorted(attributes))
        )
    fields = (
        tuple(attributes["kernel_shape"]),
        tuple(attributes.get("strides", pair)),
        tuple(pads[:2]),
    )
    return (
        Layer(name, "maxpool", *fields)
        if node.op_type == "MaxPool"
        else Layer(name, "conv", *fields, *arrays)
    )


def arguments():
    """Return what a ``to_FRAMEWORK.py`` was called with.

    The network, and where its files go, without their ends.
    """
    if len(sys.argv) != 3:
        sys.exit("usage: %s NETWORK.npz TARGET\nwrites TARGET.… for this framework" % sys.argv[0])
    return load(sys.argv[1]), sys.argv[2]


def report(**files):
    """Print the files that were made, by their role, as JSON: what a manifest says of them."""
    print(
        json.dumps({role: {"path": path, "sha256": sha256(path)} for role, path in files.items()})
    )


def sha256(path):
    """Return a file's digest."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for part in iter(lambda: file.read(1 << 20), b""):
            digest.update(part)
    return digest.hexdigest()


if __name__ == "__main__":
    save(read_onnx(sys.argv[1]), sys.argv[2])
    report(network=os.path.abspath(sys.argv[2]))
