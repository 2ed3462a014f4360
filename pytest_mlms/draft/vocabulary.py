"""The number of tokens that an ONNX model knows, by the table that its inputs look rows up in."""

from __future__ import annotations

from pathlib import Path

__all__ = ["vocabulary_of"]

_PASSING = ("Cast", "Identity", "Reshape", "Squeeze", "Unsqueeze")
"""Operators that pass token ids on."""


def vocabulary_of(path: Path) -> dict[str, int]:
    """Return the rows of the table that each input of a model indexes, where there is one.

    Returns nothing for other files, and without onnx.
    """
    if path.suffix != ".onnx":
        return {}
    try:
        import onnx
        from google.protobuf.message import DecodeError
    except ImportError:
        return {}
    try:
        graph = onnx.load(str(path), load_external_data=False).graph
    except (DecodeError, OSError):
        return {}
    rows = {weight.name: weight.dims[0] for weight in graph.initializer if weight.dims}
    origins = {value.name: value.name for value in graph.input}
    found: dict[str, int] = {}
    for node in graph.node:
        if node.op_type in _PASSING and node.input and node.input[0] in origins:
            origins[node.output[0]] = origins[node.input[0]]
        elif node.op_type == "Gather" and node.input[0] in rows and node.input[1] in origins:
            name = origins[node.input[1]]
            count = int(rows[node.input[0]])
            found[name] = min(found.get(name, count), count)
    return found
