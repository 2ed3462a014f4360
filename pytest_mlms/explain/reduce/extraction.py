"""Smaller models: some nodes of a network, with the tensors that they read as inputs.

onnx.utils.extract_model takes the nodes between named tensors. Here the nodes are named, and the
tensors follow from them. Tensors that depend on no input of the network become weights.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

import onnx
from onnx import helper, numpy_helper

from pytest_mlms.core.arrays import Array, Arrays
from pytest_mlms.core.errors import MlmsError
from pytest_mlms.explain.reduce.network import MOST_BYTES, Network


class CantExtract(MlmsError):
    """Some nodes can't be a model of their own."""


class Extract(NamedTuple):
    """A model of some nodes of a network, and its inputs."""

    model: onnx.ModelProto
    inputs: Arrays


class _Cut(NamedTuple):
    """The tensors of some nodes: weights, what they read of other nodes, and what others read."""

    stored: list[str]
    reads: list[str]
    outputs: list[str]


def extract(network: Network, numbers: Collection[int], values: Arrays) -> Extract:
    """Return a model of these nodes, whose inputs are what they read of other nodes.

    Its outputs are what other nodes read, the network's outputs, and what no node reads. ``values``
    has the tensors that are cut, as another run of the network computed them. Raises CantExtract
    where one of them is no array, and where the weights are larger than a file may be.
    """
    cut = _cut(network, numbers)
    graph = onnx.GraphProto(name="reduced")
    graph.node.extend(network.protos[number] for number in sorted(numbers))
    inputs = {}
    for name in cut.reads:
        if name not in values:
            raise CantExtract(f"{name!r} is no array of numbers, so no model can begin with it")
        if name in network.fixed:
            graph.initializer.append(numpy_helper.from_array(values[name], name))
        else:
            inputs[name] = values[name]
            graph.input.append(_input(network, name, values[name]))
    _add_stored(graph, network, cut.stored)
    graph.output.extend(_output(network, name, values) for name in cut.outputs)
    return Extract(_model(network, graph), inputs)


def network_with_outputs(network: Network, names: Iterable[str]) -> onnx.ModelProto:
    """Return the whole network with more outputs; raises CantExtract where it is too large."""
    graph = onnx.GraphProto()
    graph.CopyFrom(network.model.graph)
    del graph.initializer[:]
    graph.initializer.extend(network.weight(name) for name in network.weights)
    present = set(network.outputs)
    for name in names:
        if name not in present:
            graph.output.append(_output(network, name, {}))
    return _model(network, graph)


def _cut(network: Network, numbers: Collection[int]) -> _Cut:
    chosen = set(numbers)
    stored: dict[str, None] = {}
    reads: dict[str, None] = {}
    for number in sorted(chosen):
        for name in network.nodes[number].reads:
            if network.is_stored(name):
                stored[name] = None
            elif network.writers.get(name, -1) not in chosen:
                reads[name] = None
    outputs = []
    for number in sorted(chosen):
        for name in network.nodes[number].writes:
            if _is_read_outside(network, name, chosen):
                outputs.append(name)
    return _Cut(list(stored), list(reads), outputs)


def _is_read_outside(network: Network, name: str, chosen: set[int]) -> bool:
    """Return whether a tensor of a chosen node is an output of a model of the chosen nodes."""
    readers = network.readers.get(name, ())
    return not readers or name in network.outputs or not chosen.issuperset(readers)


def _add_stored(graph: onnx.GraphProto, network: Network, names: Iterable[str]) -> None:
    """Add weights and constants, and what the network says of their quantization."""
    constants = []
    for name in names:
        if name in network.constants:
            constants.append(network.constants[name])
        elif name in network.weights:
            graph.initializer.append(network.weight(name))
        else:
            graph.sparse_initializer.append(network.sparse_weights[name])
    nodes = list(graph.node)
    del graph.node[:]
    graph.node.extend([*constants, *nodes])


def _input(network: Network, name: str, array: Array) -> onnx.ValueInfoProto:
    """Return an input, with its free axes where the network's type goes with the array."""
    known = network.types.get(name)
    if known is not None and _takes(known, array):
        return helper.make_value_info(name, known)
    kind = helper.np_dtype_to_tensor_dtype(array.dtype)
    return helper.make_tensor_value_info(name, kind, array.shape)


def _takes(known: onnx.TypeProto, array: Array) -> bool:
    """Return whether an array is of a type, and of a shape that the type says."""
    tensor = known.tensor_type
    if not tensor.HasField("shape") or len(tensor.shape.dim) != array.ndim:
        return False
    for axis, size in zip(tensor.shape.dim, array.shape, strict=True):
        if axis.HasField("dim_value") and axis.dim_value != size:
            return False
    return bool(tensor.elem_type == helper.np_dtype_to_tensor_dtype(array.dtype))


def _output(network: Network, name: str, values: Arrays) -> onnx.ValueInfoProto:
    """Return an output, of the rank that is known; its sizes follow from the inputs."""
    known = network.types.get(name)
    if known is not None and known.WhichOneof("value") != "tensor_type":
        return helper.make_value_info(name, known)
    if known is not None and known.tensor_type.HasField("shape"):
        rank = len(known.tensor_type.shape.dim)
        return helper.make_tensor_value_info(name, known.tensor_type.elem_type, [None] * rank)
    if name in values:
        array = values[name]
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        return helper.make_tensor_value_info(name, kind, [None] * array.ndim)
    return onnx.ValueInfoProto(name=name)  # the framework infers the type


def _model(network: Network, graph: onnx.GraphProto) -> onnx.ModelProto:
    """Return a graph as a model with the network's imports."""
    size = sum(tensor.ByteSize() for tensor in graph.initializer)
    if size > MOST_BYTES:
        problem = f"{len(graph.node)} nodes have {size / 1e9:.1f} GB of weights"
        raise CantExtract(f"{problem}; a file of protobuf holds less than 2 GB")
    return helper.make_model(
        graph,
        ir_version=network.model.ir_version,
        opset_imports=network.model.opset_import,
        producer_name="pytest-mlms",
    )
