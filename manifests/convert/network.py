"""A plain CNN as a list of layers, read out of its ONNX file, for the scripts beside this.

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

_PAIRS = ("kernel", "stride", "pad")


class Layer(NamedTuple):
    """One layer; ``name`` is that of the tensor it makes.

    ``kind`` is conv, relu, maxpool, flatten or dense. Kernel, stride and pad are (height, width), 0
    where unused. ``weight`` is outputs x inputs x height x width, or outputs x inputs.
    """

    name: str
    kind: str
    kernel: Tuple[int, int] = (0, 0)
    stride: Tuple[int, int] = (0, 0)
    pad: Tuple[int, int] = (0, 0)
    weight: Any = None
    bias: Any = None


class Network(NamedTuple):
    """Layers in their order; ``shape`` is of one input: channels, height, width."""

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
        shape = self.shape
        found = []
        for layer in self.layers:
            shape = _shape_after(layer, shape)
            found.append(shape)
        return found


def _shape_after(layer, shape):
    if layer.kind == "flatten":
        return (int(numpy.prod(shape)),)
    if layer.kind == "dense":
        return (len(layer.weight),)
    if layer.kind == "relu":
        return shape
    channels = shape[0]
    if layer.kind == "conv":
        channels = len(layer.weight)
    return (channels, _size_after(layer, shape, 0), _size_after(layer, shape, 1))


def _size_after(layer, shape, axis):
    """Return the height (0) or width (1) that a convolution or pooling makes."""
    size = shape[1 + axis] + 2 * layer.pad[axis]
    steps = (size - layer.kernel[axis]) // layer.stride[axis]
    return steps + 1


def load(path):
    """Return the network in an .npz file that ``save`` wrote."""
    layers = []
    with numpy.load(path) as file:
        facts = json.loads(str(file["facts"]))
        for fields in facts["layers"]:
            for key in _PAIRS:
                fields[key] = tuple(fields[key])
            weight = fields["name"] + "_weight"
            if weight in file.files:
                fields["weight"] = file[weight]
                fields["bias"] = file[fields["name"] + "_bias"]
            layers.append(Layer(**fields))
    return Network(
        name=facts["name"],
        input=facts["input"],
        shape=tuple(facts["shape"]),
        layers=tuple(layers),
    )


def save(network, path):
    """Write a network as plain arrays and one of JSON."""
    arrays = {}
    layers = []
    for layer in network.layers:
        fields = layer._asdict()
        weight = fields.pop("weight")
        bias = fields.pop("bias")
        layers.append(fields)
        if weight is not None:
            arrays[layer.name + "_weight"] = weight
            arrays[layer.name + "_bias"] = bias
    facts = {
        "name": network.name,
        "input": network.input,
        "shape": network.shape,
        "layers": layers,
    }
    numpy.savez(path, facts=json.dumps(facts), **arrays)


def read_onnx(path):
    """Return the network in an ONNX file; raises ValueError for what is no plain CNN."""
    import onnx
    from onnx import numpy_helper

    graph = onnx.load(str(path)).graph
    arrays = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    (source,) = [value for value in graph.input if value.name not in arrays]
    flow = source.name
    layers = []
    for node in graph.node:
        is_next = node.input[0] == flow
        if not is_next or len(node.output) != 1:
            text = "%s %r does not take what the node before it gave"
            raise ValueError(text % (node.op_type, node.name))
        attributes = {}
        for attribute in node.attribute:
            attributes[attribute.name] = onnx.helper.get_attribute_value(attribute)
        weights = [arrays[name] for name in node.input[1:]]
        layers.append(_layer(node, attributes, weights))
        flow = node.output[0]
    sizes = [axis.dim_value for axis in source.type.tensor_type.shape.dim]
    return Network(
        name=graph.name,
        input=source.name,
        shape=tuple(sizes[1:]),
        layers=tuple(layers),
    )


def _layer(node, attributes, weights):
    """Return a node as a layer; raises ValueError for what no plain CNN has."""
    name = node.output[0]
    if node.op_type in ("Relu", "Flatten"):
        return Layer(name, node.op_type.lower())
    if node.op_type == "Gemm" and attributes == {"transB": 1}:
        return Layer(name, "dense", weight=weights[0], bias=weights[1])
    pads = attributes.get("pads", [0, 0, 0, 0])
    is_symmetric = pads[:2] == pads[2:]
    is_plain = is_symmetric and set(attributes) <= {"kernel_shape", "strides", "pads"}
    is_convolution = node.op_type == "Conv" and len(weights) == 2
    if not is_plain or not (is_convolution or node.op_type == "MaxPool"):
        text = "%s %r is not what a plain CNN has: %s"
        raise ValueError(text % (node.op_type, node.name, sorted(attributes)))
    layer = Layer(
        name=name,
        kind="conv" if is_convolution else "maxpool",
        kernel=tuple(attributes["kernel_shape"]),
        stride=tuple(attributes.get("strides", (1, 1))),
        pad=tuple(pads[:2]),
    )
    if is_convolution:
        return layer._replace(weight=weights[0], bias=weights[1])
    return layer


def arguments():
    """Return what a ``to_FRAMEWORK.py`` was called with.

    The network, and where its files go, without their ends.
    """
    if len(sys.argv) != 3:
        sys.exit("usage: %s NETWORK.npz TARGET\nwrites TARGET.… for this framework" % sys.argv[0])
    return load(sys.argv[1]), sys.argv[2]


def report(**files):
    """Print the files that were made, by their role, as JSON: what a manifest says of them."""
    entries = {}
    for role, path in files.items():
        entries[role] = {"path": path, "sha256": sha256(path)}
    print(json.dumps(entries))


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
