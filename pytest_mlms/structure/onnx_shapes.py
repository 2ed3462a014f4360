"""The types and shapes of an ONNX model's tensors, those too that depend on a shape which the model
computes.

onnx's own inference stops where a Reshape takes its shape from what Slice, Concat and the like made
of another's. Such small tensors are computed here on the way, by onnx's own evaluator.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx
from mlms_predictors import Tensor
from onnx.reference import ReferenceEvaluator

__all__ = ["known_tensors"]

_SMALL = 4096  # elements of a tensor that is computed


def known_tensors(model: onnx.ModelProto) -> dict[str, Tensor]:
    """Return those tensors by name whose shape can be told.

    Raises InferenceError for what contradicts itself.
    """
    inferred = onnx.shape_inference.infer_shapes(model, data_prop=True)
    walk = _Walk(inferred)
    if not all(
        _is_known(walk.types.get(name))
        for node in inferred.graph.node
        for name in node.output
        if name
    ):
        for node in inferred.graph.node:
            walk.step(node)
    return {name: _tensor(name, kind) for name, kind in walk.types.items() if _is_known(kind)}


def _tensor(name: str, kind: onnx.TypeProto) -> Tensor:
    return Tensor(name, _dtype(kind.tensor_type.elem_type), tuple(_sizes(kind)))


def _domain(name: str) -> str:
    """Return a domain of operators under its one name: that of onnx's own has two."""
    return "" if name == "ai.onnx" else name


def _dtype(kind: int) -> str:
    try:
        return str(onnx.helper.tensor_dtype_to_np_dtype(kind).name)
    except (KeyError, TypeError, ValueError):  # none at all
        return ""


def _sizes(kind: onnx.TypeProto) -> list[int]:
    return [axis.dim_value for axis in kind.tensor_type.shape.dim]


def _is_known(kind: onnx.TypeProto | None) -> bool:
    """Whether all of a tensor's axes are numbers."""
    if kind is None or not kind.tensor_type.HasField("shape"):
        return False
    return all(axis.WhichOneof("value") == "dim_value" for axis in kind.tensor_type.shape.dim)


class _Walk:
    """Node by node in the order of the graph.

    Types of all tensors, values of the small ones that need no input.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        graph = model.graph
        self.types = {
            value.name: value.type for value in (*graph.input, *graph.value_info, *graph.output)
        }
        self._values: dict[str, onnx.TensorProto] = {}
        self._imports = list(model.opset_import)
        self._versions = {_domain(one.domain): one.version for one in self._imports}
        self._ir_version = model.ir_version
        for tensor in graph.initializer:
            self.types[tensor.name] = onnx.helper.make_tensor_type_proto(
                tensor.data_type, tensor.dims
            )
            if math.prod(tensor.dims) <= _SMALL:
                self._values[tensor.name] = tensor

    def step(self, node: onnx.NodeProto) -> None:
        """Infer what a node gives, and compute it where that is small and depends on no input."""
        inputs = [name for name in node.input if name]
        if not all(_is_known(self.types.get(name)) for name in node.output if name):
            self._infer(node, inputs)
        if node.op_type == "Shape" and _is_known(self.types.get(node.input[0])):
            self._keep(node.output[0], np.array(self._shape(node), np.int64))
        elif all(name in self._values for name in inputs) and not node.op_type.startswith("Random"):
            self._compute(node, inputs)

    def _infer(self, node: onnx.NodeProto, inputs: list[str]) -> None:
        if not all(name in self.types for name in inputs):
            return
        types = {name: self.types[name] for name in inputs}
        values = {name: self._values[name] for name in inputs if name in self._values}
        try:
            domain = _domain(node.domain)
            schema = onnx.defs.get_schema(node.op_type, self._versions.get(domain, 1), domain)
            found = onnx.shape_inference.infer_node_outputs(
                schema,
                node,
                types,
                values,
                opset_imports=self._imports,
                ir_version=self._ir_version,
            )
        except (
            onnx.defs.SchemaError,
            onnx.shape_inference.InferenceError,
        ):  # then it stays unknown, which is told
            return
        self.types.update(found)

    def _shape(self, node: onnx.NodeProto) -> list[int]:
        cut = {attribute.name: attribute.i for attribute in node.attribute}
        return _sizes(self.types[node.input[0]])[cut.get("start") : cut.get("end")]

    def _compute(self, node: onnx.NodeProto, inputs: list[str]) -> None:
        if not all(_is_known(self.types.get(name)) for name in node.output if name):
            return
        read, made = (
            [onnx.helper.make_value_info(name, self.types[name]) for name in names if name]
            for names in (inputs, node.output)
        )
        if any(math.prod(_sizes(one.type)) > _SMALL for one in made):
            return
        graph = onnx.helper.make_graph([node], "one", read, made)
        try:
            evaluator = ReferenceEvaluator(graph, opsets=self._versions)
            found = evaluator.run(
                None, {name: onnx.numpy_helper.to_array(self._values[name]) for name in inputs}
            )
        except Exception:  # the evaluator raises many kinds
            return  # the value stays unknown, and what depends on it is reported
        for value, array in zip(made, found, strict=True):
            self._keep(value.name, np.asarray(array))

    def _keep(self, name: str, array: np.ndarray[Any, Any]) -> None:
        self._values[name] = onnx.numpy_helper.from_array(array, name)
