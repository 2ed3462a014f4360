"""An ONNX file as nodes that can be taken out of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import onnx
from google.protobuf.message import DecodeError
from onnx import external_data_helper, inliner, shape_inference

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.measure.structure.onnx_operations import subgraphs
from pytest_mlms.measure.structure.onnx_structure import reads_of_outside

MOST_BYTES = 1_900_000_000
"""Weights of a model that is written into one file; a message of protobuf ends at 2 GB."""

_DEFAULT_DOMAINS = ("", "ai.onnx")


class Node(NamedTuple):
    """A node: its name as ONNX Runtime gives it, its operator, and its tensors without "".

    ``reads`` also has the tensors that a graph inside of the node reads from the graph around it.
    """

    name: str
    type: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]


@dataclass(frozen=True)
class Network:
    """A model whose nodes are numbered in their order.

    Nodes ``Constant`` are no nodes here: they are ``constants``, by the name of their tensor.
    ``inputs`` and ``outputs`` are the graph's, without weights. ``types`` has those of tensors as
    far as onnx infers them. ``folder`` has the files that external weights are in.
    """

    model: onnx.ModelProto
    protos: tuple[onnx.NodeProto, ...]
    nodes: tuple[Node, ...]
    constants: Mapping[str, onnx.NodeProto]
    weights: Mapping[str, onnx.TensorProto]
    sparse_weights: Mapping[str, onnx.SparseTensorProto]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    types: Mapping[str, onnx.TypeProto]
    folder: Path

    @cached_property
    def writers(self) -> Mapping[str, int]:
        """The number of the node that writes each tensor."""
        found = {}
        for number, node in enumerate(self.nodes):
            for name in node.writes:
                found[name] = number
        return found

    @cached_property
    def readers(self) -> Mapping[str, tuple[int, ...]]:
        """The numbers of the nodes that read each tensor."""
        found: dict[str, list[int]] = {}
        for number, node in enumerate(self.nodes):
            for name in node.reads:
                found.setdefault(name, []).append(number)
        return {name: tuple(numbers) for name, numbers in found.items()}

    @cached_property
    def fixed(self) -> frozenset[str]:
        """The tensors that nodes compute from weights alone, whatever the inputs are."""
        known = {*self.constants, *self.weights, *self.sparse_weights}
        computed: set[str] = set()
        for node in self.nodes:
            if known.issuperset(node.reads):
                computed.update(node.writes)
                known.update(node.writes)
        return frozenset(computed)

    @property
    def all(self) -> tuple[int, ...]:
        """The numbers of all nodes."""
        return tuple(range(len(self.nodes)))

    def is_stored(self, name: str) -> bool:
        """Return whether a tensor is a weight or a constant."""
        return name in self.constants or name in self.weights or name in self.sparse_weights

    def neighbours(self, number: int, forwards: bool) -> Iterator[int]:
        """Yield the nodes that read what a node writes, or those that write what it reads."""
        node = self.nodes[number]
        if forwards:
            for name in node.writes:
                yield from self.readers.get(name, ())
            return
        for name in node.reads:
            if name in self.writers:
                yield self.writers[name]

    def weight(self, name: str) -> onnx.TensorProto:
        """Return a weight with its values, which may be in another file.

        Raises MlmsError where that file can't be read.
        """
        tensor = self.weights[name]
        if not external_data_helper.uses_external_data(tensor):
            return tensor
        loaded = onnx.TensorProto()
        loaded.CopyFrom(tensor)
        try:
            external_data_helper.load_external_data_for_tensor(loaded, str(self.folder))
        except (OSError, ValueError, onnx.checker.ValidationError) as error:
            problem = f"the values of {name!r} can't be read: {error}"
            raise MlmsError(f"{problem}; put the file of its weights beside the model") from error
        loaded.data_location = onnx.TensorProto.DEFAULT
        del loaded.external_data[:]
        return loaded


def read_network(path: Path) -> Network:
    """Read an ONNX file.

    Functions of the model are put in place of the nodes that call them, as frameworks do. Raises
    MlmsError for a file that is no model, and for nodes that aren't in order.
    """
    try:
        model = onnx.load(str(path), load_external_data=False)
        if model.functions:
            model = inliner.inline_local_functions(model)
    except (DecodeError, OSError, ValueError) as error:
        problem = f"{path} is not an ONNX model ({error})"
        raise MlmsError(f"{problem}; name one that onnx.checker accepts") from error
    if not model.graph.node:
        raise MlmsError(f"{path} is no ONNX model, or one without nodes; name another file")
    network = _network(model, path.parent)
    _check_order(network, path)
    return network


def _network(model: onnx.ModelProto, folder: Path) -> Network:
    graph = model.graph
    constants = {}
    protos = []
    nodes = []
    for index, proto in enumerate(graph.node):
        if _is_constant(proto):
            constants[proto.output[0]] = proto
        else:
            protos.append(proto)
            nodes.append(_node(index, proto))
    weights = {tensor.name: tensor for tensor in graph.initializer}
    sparse_weights = {tensor.values.name: tensor for tensor in graph.sparse_initializer}
    inputs = [value.name for value in graph.input if value.name not in weights]
    return Network(
        model=model,
        protos=tuple(protos),
        nodes=tuple(nodes),
        constants=constants,
        weights=weights,
        sparse_weights=sparse_weights,
        inputs=tuple(name for name in inputs if name not in sparse_weights),
        outputs=tuple(value.name for value in graph.output),
        types=_types(model),
        folder=folder,
    )


def _is_constant(proto: onnx.NodeProto) -> bool:
    return proto.op_type == "Constant" and proto.domain in _DEFAULT_DOMAINS


def _node(index: int, proto: onnx.NodeProto) -> Node:
    reads = list(proto.input)
    for body in subgraphs(proto):
        reads += reads_of_outside(body)
    name = proto.name or f"{proto.op_type}_{index}"
    return Node(
        name=name,
        type=proto.op_type,
        reads=_named(reads),
        writes=_named(proto.output),
    )


def _named(names: Iterable[str]) -> tuple[str, ...]:
    """Return names once each; the name of an optional tensor that is left out is empty."""
    return tuple(dict.fromkeys(name for name in names if name))


def _types(model: onnx.ModelProto) -> dict[str, onnx.TypeProto]:
    """Return the types of tensors; those that onnx can't infer are absent."""
    try:
        graph = shape_inference.infer_shapes(model, data_prop=True).graph
    except (shape_inference.InferenceError, ValueError, TypeError):
        graph = model.graph
    values = (*graph.value_info, *graph.input, *graph.output)
    return {value.name: value.type for value in values if value.type.WhichOneof("value")}


def _check_order(network: Network, path: Path) -> None:
    """Raise MlmsError where a node reads what a later node writes."""
    for number, node in enumerate(network.nodes):
        for name in node.reads:
            if network.writers.get(name, -1) >= number:
                problem = f"{path}: node {node.name!r} reads {name!r}, which a later node writes"
                raise MlmsError(f"{problem}; put the nodes in order, as onnx.checker asks for")
