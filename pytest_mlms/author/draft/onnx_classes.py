"""The classes of a classifier in an ONNX file, in the order of its scores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pytest_mlms.author.draft.onnx_axes import axes_of_inputs

_ATTRIBUTES = ("classlabels_strings", "classlabels_int64s", "classlabels_ints")
_INITIALIZER = "classes"  # of those that have no operator of their own
_ML = "ai.onnx.ml"


def classes_in(path: Path) -> list[str]:
    """Return the classes as texts, none for another kind of file, without onnx, and of no names.

    The classifier that is computed last counts: others may be parts of an ensemble.
    """
    graph = graph_in(path)
    if graph is None:
        return []
    for weight in graph.initializer:
        if weight.name == _INITIALIZER and len(weight.dims) == 1:
            import onnx

            return [_text(value) for value in onnx.numpy_helper.to_array(weight).tolist()]
    found: list[str] = []
    for node in graph.node:
        if node.domain == _ML:
            found = _labels(node) or found
    return found


def graph_in(path: Path) -> Any:
    """Return the graph of an ONNX file without its weights beside it, None where there is none.

    There is none without onnx either.
    """
    if not axes_of_inputs(path):
        return None
    try:
        import onnx
        from google.protobuf.message import DecodeError
    except ImportError:
        return None
    try:
        return onnx.load(str(path), load_external_data=False).graph
    except (DecodeError, OSError):
        return None


def _labels(node: Any) -> list[str]:
    """Return the classes that are attributes of a node."""
    for attribute in node.attribute:
        if attribute.name in _ATTRIBUTES:
            values = [*attribute.strings, *attribute.ints]
            if values:
                return [_text(value) for value in values]
    return []


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
