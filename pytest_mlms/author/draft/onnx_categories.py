"""The categories that the encoders in an ONNX file know."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pytest_mlms.author.draft.onnx_classes import graph_in

_TEXTS = {
    "OneHotEncoder": "cats_strings",
    "LabelEncoder": "keys_strings",
    "CategoryMapper": "cats_strings",
}
"""Encoders of categories, and the attributes that have the texts that they take.

https://onnx.ai/onnx/operators/index.html, ai.onnx.ml
"""
_TENSOR = "keys_tensor"  # of a LabelEncoder, from version 4 of the operators on


def categories_in(path: Path) -> frozenset[str]:
    """Return the texts that the encoders of a model know, all of them together.

    None for another kind of file, without onnx, and for a model without such encoders.
    """
    graph = graph_in(path)
    if graph is None:
        return frozenset()
    return frozenset(
        text.decode(errors="replace") for node in graph.node for text in _texts_of(node)
    )


def _texts_of(node: Any) -> Iterator[bytes]:
    for attribute in node.attribute:
        if attribute.name == _TEXTS.get(node.op_type):
            yield from attribute.strings
        elif node.op_type == "LabelEncoder" and attribute.name == _TENSOR:
            yield from attribute.t.string_data
