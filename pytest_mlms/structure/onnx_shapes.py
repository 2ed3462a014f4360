"""The shapes of an ONNX model's tensors, also of those that the model computes a shape for.

onnx's own inference stops at a Reshape whose shape is made by Slice, Concat and the like. Such
small tensors are computed here by onnx's own evaluator, node by node, and inference goes on.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import onnx
from mlms_predictors import Tensor
from onnx import defs, helper, numpy_helper, shape_inference
from onnx.reference import ReferenceEvaluator

__all__ = ["known_tensors"]

_SMALL = 4096  # the most elements of a tensor that is computed


def known_tensors(model: onnx.ModelProto) -> dict[str, Tensor]:
    """Return the tensors whose shape is known, by name.

    Raises onnx.shape_inference.InferenceError for a model that is not valid, such as one that
    doesn't import the operators that it uses.
    """
    inferred = shape_inference.infer_shapes(model, data_prop=True)
    inference = _Inference(inferred)
    nodes = inferred.graph.node
    if not all(inference.knows_outputs(node) for node in nodes):
        for node in nodes:
            inference.add(node)
    return inference.tensors()


class _Inference:
    """Inference of the types of all tensors, and of the values of small ones, in the graph's order.

    Only values that need no input of the model are computed.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        graph = model.graph
        self._types: dict[str, onnx.TypeProto] = {}
        self._values: dict[str, onnx.TensorProto] = {}
        self._ir_version = model.ir_version
        self._imports = list(model.opset_import)
        self._versions = {_domain_of(entry): entry.version for entry in self._imports}
        for value in (*graph.input, *graph.value_info, *graph.output):
            self._types[value.name] = value.type
        for tensor in graph.initializer:
            kind = helper.make_tensor_type_proto(tensor.data_type, tensor.dims)
            self._types[tensor.name] = kind
            if math.prod(tensor.dims) <= _SMALL:
                self._values[tensor.name] = tensor

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors whose shape is known."""
        tensors = {}
        for name, kind in self._types.items():
            if _is_known(kind):
                dtype = _dtype(kind.tensor_type.elem_type)
                tensors[name] = Tensor(name, dtype, tuple(_sizes(kind)))
        return tensors

    def knows_outputs(self, node: onnx.NodeProto) -> bool:
        """Return whether the shapes of all outputs of a node are known."""
        return all(_is_known(self._types.get(name)) for name in _named(node.output))

    def add(self, node: onnx.NodeProto) -> None:
        """Infer the types of a node's outputs, and compute small ones that depend on no input."""
        if not self.knows_outputs(node):
            self._infer(node)
        if node.op_type == "Shape" and _is_known(self._types.get(node.input[0])):
            self._keep(node.output[0], self._shape(node))
        elif self._can_compute(node):
            self._compute(node)

    def _infer(self, node: onnx.NodeProto) -> None:
        inputs = _named(node.input)
        if not all(name in self._types for name in inputs):
            return
        domain = _domain_of(node)
        version = self._versions.get(domain, 1)
        values = {name: self._values[name] for name in inputs if name in self._values}
        try:
            outputs = shape_inference.infer_node_outputs(
                defs.get_schema(node.op_type, version, domain),
                node,
                {name: self._types[name] for name in inputs},
                values,
                opset_imports=self._imports,
                ir_version=self._ir_version,
            )
        except (defs.SchemaError, shape_inference.InferenceError):
            return  # its outputs stay unknown, and are reported as such
        self._types.update(outputs)

    def _shape(self, node: onnx.NodeProto) -> np.ndarray[Any, Any]:
        """Return the value of a node of type Shape."""
        attributes = {attribute.name: attribute.i for attribute in node.attribute}
        sizes = _sizes(self._types[node.input[0]])
        wanted = sizes[attributes.get("start") : attributes.get("end")]
        return np.array(wanted, np.int64)

    def _can_compute(self, node: onnx.NodeProto) -> bool:
        if node.op_type.startswith("Random") or not self.knows_outputs(node):
            return False
        if not all(name in self._values for name in _named(node.input)):
            return False
        outputs = [self._types[name] for name in _named(node.output)]
        return all(math.prod(_sizes(kind)) <= _SMALL for kind in outputs)

    def _compute(self, node: onnx.NodeProto) -> None:
        inputs = _named(node.input)
        outputs = _named(node.output)
        graph = helper.make_graph([node], "one", self._infos(inputs), self._infos(outputs))
        arrays = {name: numpy_helper.to_array(self._values[name]) for name in inputs}
        try:
            evaluator = ReferenceEvaluator(graph, opsets=self._versions)
            results = evaluator.run(None, arrays)
        except Exception:  # the evaluator raises many kinds
            return  # the values stay unknown, and what depends on them is reported as such
        for name, result in zip(outputs, results, strict=True):
            self._keep(name, np.asarray(result))

    def _infos(self, names: Iterable[str]) -> list[onnx.ValueInfoProto]:
        return [helper.make_value_info(name, self._types[name]) for name in names]

    def _keep(self, name: str, array: np.ndarray[Any, Any]) -> None:
        self._values[name] = numpy_helper.from_array(array, name)


def _named(names: Iterable[str]) -> list[str]:
    """Return the names that are not empty: an optional tensor that is left out has none."""
    return [name for name in names if name]


def _domain_of(entry: Any) -> str:
    """Return the domain of operators of a node or an import; onnx's own has two names."""
    if entry.domain == "ai.onnx":
        return ""
    return str(entry.domain)


def _dtype(kind: int) -> str:
    """Return the name of an element type, "" for one that numpy doesn't have."""
    try:
        dtype = helper.tensor_dtype_to_np_dtype(kind)
    except (KeyError, TypeError, ValueError):
        return ""
    return str(dtype.name)


def _sizes(kind: onnx.TypeProto) -> list[int]:
    return [axis.dim_value for axis in kind.tensor_type.shape.dim]


def _is_known(kind: onnx.TypeProto | None) -> bool:
    """Return whether all axes of a tensor are numbers."""
    if kind is None or not kind.tensor_type.HasField("shape"):
        return False
    axes = kind.tensor_type.shape.dim
    return all(axis.WhichOneof("value") == "dim_value" for axis in axes)
