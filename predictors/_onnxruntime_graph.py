"""An ONNX file with every value as an output, made without the package onnx.

A reader of protocol buffers merges two values of a message's field. So a second ``graph`` that
holds nothing but outputs is appended, and the rest of the file stays as it is
(https://protobuf.dev/programming-guides/encoding/#last-one-wins).
"""

from typing import List, Set, Tuple

from mlms_predictors._run.protobuf import encode_field, last_value, values

# Field numbers of onnx.proto
_MODEL_GRAPH = 7
_GRAPH_NODE = 1
_GRAPH_OUTPUT = 12
_NODE_OUTPUT = 2
_VALUE_NAME = 1


def with_all_outputs(model: bytes) -> Tuple[bytes, List[str]]:
    """Return the model with more outputs, and the names of all outputs of nodes in their order."""
    names: List[str] = []
    present: Set[str] = set()
    for graph in values(memoryview(model), _MODEL_GRAPH):
        names += _names_of_node_outputs(graph)
        present.update(_names_of_graph_outputs(graph))
    outputs = b""
    for name in names:
        if name not in present:
            value = encode_field(_VALUE_NAME, name.encode())
            outputs += encode_field(_GRAPH_OUTPUT, value)
    return bytes(model) + encode_field(_MODEL_GRAPH, outputs), names


def _names_of_node_outputs(graph):
    """Return the names of the values that nodes compute; an unused output has an empty name."""
    names = []
    for node in values(graph, _GRAPH_NODE):
        for name in values(node, _NODE_OUTPUT):
            if name:
                names.append(bytes(name).decode())
    return names


def _names_of_graph_outputs(graph):
    outputs = values(graph, _GRAPH_OUTPUT)
    return [bytes(last_value(output, _VALUE_NAME)).decode() for output in outputs]
