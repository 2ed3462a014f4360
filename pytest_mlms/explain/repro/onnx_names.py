"""Removal of texts and names from an ONNX model, whose structure stays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pytest_mlms.measure.structure.onnx_operations import subgraphs

_TEXTS = ("doc_string", "metadata_props", "denotation")
"""The fields of onnx.proto3 that describe, in whatever message they are."""

_OF_MODEL = ("producer_name", "producer_version", "domain", "model_version", "training_info")


def graphs_of(graph: Any) -> Iterator[Any]:
    """Yield a graph, and those inside of its nodes."""
    yield graph
    for node in graph.node:
        for inner in subgraphs(node):
            yield from graphs_of(inner)


def strip_texts(model: Any) -> None:
    """Remove descriptions and the producer from a model, everywhere in it."""
    for name in _OF_MODEL:
        model.ClearField(name)
    _strip(model)


def _strip(message: Any) -> None:
    for field, value in message.ListFields():
        if field.name in _TEXTS:
            message.ClearField(field.name)
        elif field.message_type is not None:
            for inner in [value] if hasattr(value, "ListFields") else value:
                _strip(inner)


def rename(model: Any) -> Mapping[str, str]:
    """Call the nodes n0, n1, …, the tensors t0, … and the free axes d0, …; return tensors' names.

    A name stays the name of one tensor in all graphs. The model has no functions of its own.
    """
    tensors: dict[str, str] = {"": ""}
    axes: dict[str, str] = {"": ""}
    number = 0
    for graph in graphs_of(model.graph):
        graph.name = "graph"
        for value in (*graph.input, *graph.output, *graph.value_info):
            value.name = _renamed(value.name, tensors, "t")
            _rename_axes(value.type, axes)
        for tensor in (*graph.initializer, *(sparse.values for sparse in graph.sparse_initializer)):
            tensor.name = _renamed(tensor.name, tensors, "t")
        for annotation in graph.quantization_annotation:
            annotation.tensor_name = _renamed(annotation.tensor_name, tensors, "t")
            for entry in annotation.quant_parameter_tensor_names:
                entry.value = _renamed(entry.value, tensors, "t")
        for node in graph.node:
            node.name = f"n{number}"
            number += 1
            for names in (node.input, node.output):
                names[:] = [_renamed(name, tensors, "t") for name in names]
            _clear_names(node)
    return tensors


def _clear_names(node: Any) -> None:
    """Remove the names of tensors that are attributes, which nothing refers to."""
    for attribute in node.attribute:
        for tensor in (attribute.t, attribute.sparse_tensor.values, *attribute.tensors):
            if tensor.name:
                tensor.ClearField("name")


def _renamed(name: str, known: dict[str, str], letter: str) -> str:
    return known.setdefault(name, f"{letter}{len(known) - 1}")


def _rename_axes(kind: Any, axes: dict[str, str]) -> None:
    """Rename the free axes of a type, also inside of sequences and maps."""
    for field, value in kind.ListFields():
        if field.name == "shape":
            for axis in value.dim:
                if axis.dim_param:
                    axis.dim_param = _renamed(axis.dim_param, axes, "d")
        elif field.message_type is not None:
            _rename_axes(value, axes)
