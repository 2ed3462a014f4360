"""The shapes of an ONNX model's tensors, and its inputs and outputs, read without a framework.

onnx's own inference stops at a Reshape whose shape is made by Slice, Concat and the like. Such
small tensors are computed here by onnx's own evaluator, node by node, and inference goes on."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import onnx
from mlms_predictors import Tensor
from onnx import defs, helper, numpy_helper, shape_inference
from onnx.reference import ReferenceEvaluator

Array = np.ndarray[Any, Any]

_SMALL = 4096  # the most elements of a tensor that is computed


def shape_errors() -> tuple[type[Exception], ...]:
    """Return what onnx raises for models that are damaged or not valid.

    TypeError is that of its functions in C++, for numbers that don't fit.
    """
    return (shape_inference.InferenceError, onnx.checker.ValidationError, TypeError)


def known_tensors(model: onnx.ModelProto) -> dict[str, Tensor]:
    """Return the tensors whose shape is known, by name.

    Raises onnx.shape_inference.InferenceError for a model that is not valid, such as one that
    doesn't import the operators that it uses.
    """
    inferred = shape_inference.infer_shapes(model, data_prop=True)
    inference = _Inference(inferred)
    nodes = [_Node(proto) for proto in inferred.graph.node]
    if any(not inference.knows(node.outputs) for node in nodes):
        for node in nodes:
            inference.add(node)
    return inference.tensors()


class _Node:
    """A node of a graph.

    ``inputs`` and ``outputs`` are without optional tensors that are left out, whose names are
    empty.
    """

    def __init__(self, proto: onnx.NodeProto) -> None:
        self.proto = proto
        self.kind = proto.op_type
        self.domain = _domain_of(proto)
        self.inputs = [name for name in proto.input if name]
        self.outputs = [name for name in proto.output if name]


class _Inference:
    """Inference of the types of all tensors, and of the values of small ones, in the graph's order.

    Only values that depend on no input of the model are computed.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        graph = model.graph
        self._ir_version = model.ir_version
        self._imports = list(model.opset_import)
        self._versions = {}
        for entry in self._imports:
            self._versions[_domain_of(entry)] = entry.version
        self._types: dict[str, onnx.TypeProto] = {}
        for value in (*graph.input, *graph.value_info, *graph.output):
            self._types[value.name] = value.type
        self._values: dict[str, onnx.TensorProto] = {}
        for tensor in graph.initializer:
            kind = helper.make_tensor_type_proto(tensor.data_type, tensor.dims)
            self._types[tensor.name] = kind
            if _is_small(kind):
                self._values[tensor.name] = tensor

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors whose shape is known."""
        tensors = {}
        for name, kind in self._types.items():
            if _is_known(kind):
                dtype = dtype_of(kind.tensor_type.elem_type)
                shape = tuple(_sizes(kind))
                tensors[name] = Tensor(name, dtype, shape)
        return tensors

    def knows(self, names: Iterable[str]) -> bool:
        """Return whether the shapes of all of these tensors are known."""
        kinds = map(self._types.get, names)
        return all(map(_is_known, kinds))

    def add(self, node: _Node) -> None:
        """Infer the types of a node's outputs, and compute small ones that depend on no input."""
        if not self.knows(node.outputs):
            self._infer(node)
        if node.kind == "Shape" and self.knows(node.inputs):
            (output,) = node.outputs
            (name,) = node.inputs
            sizes = _sizes(self._types[name])
            bounds = {attribute.name: attribute.i for attribute in node.proto.attribute}
            wanted = slice(bounds.get("start"), bounds.get("end"))
            shape_value = np.array(sizes[wanted], np.int64)
            self._keep(output, shape_value)
        elif self._can_compute(node):
            self._compute(node)

    def _infer(self, node: _Node) -> None:
        if not self._types.keys() >= set(node.inputs):
            return
        version = self._versions.get(node.domain, 1)
        try:
            schema = defs.get_schema(node.kind, version, node.domain)
            outputs = shape_inference.infer_node_outputs(
                schema,
                node.proto,
                _chosen(self._types, node.inputs),
                _chosen(self._values, node.inputs),
                opset_imports=self._imports,
                ir_version=self._ir_version,
            )
        except (defs.SchemaError, shape_inference.InferenceError):
            return  # its outputs stay unknown, and are reported as such
        self._types.update(outputs)

    def _can_compute(self, node: _Node) -> bool:
        if node.kind.startswith("Random"):
            return False
        if not self._values.keys() >= set(node.inputs):
            return False
        if not self.knows(node.outputs):
            return False
        kinds = _chosen(self._types, node.outputs)
        return all(map(_is_small, kinds.values()))

    def _compute(self, node: _Node) -> None:
        inputs = self._infos(node.inputs)
        outputs = self._infos(node.outputs)
        graph = helper.make_graph([node.proto], "one", inputs, outputs)
        arrays = {}
        for name in node.inputs:
            arrays[name] = numpy_helper.to_array(self._values[name])
        try:
            evaluator = ReferenceEvaluator(graph, opsets=self._versions)
            results = evaluator.run(None, arrays)
        except Exception:  # the evaluator raises many kinds
            return  # the values stay unknown, and what depends on them is reported as such
        for name, result in zip(node.outputs, results, strict=True):
            self._keep(name, np.asarray(result))

    def _infos(self, names: Iterable[str]) -> list[onnx.ValueInfoProto]:
        infos = []
        for name in names:
            infos.append(helper.make_value_info(name, self._types[name]))
        return infos

    def _keep(self, name: str, array: Array) -> None:
        self._values[name] = numpy_helper.from_array(array, name)


def _chosen(values: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Return the values that have one of the names."""
    return {name: values[name] for name in names if name in values}


def _domain_of(entry: Any) -> str:
    """Return the domain of operators of a node or an import; onnx's own has two names."""
    if entry.domain == "ai.onnx":
        return ""
    return str(entry.domain)


def dtype_of(kind: int) -> str:
    """Return the name of an element type, "" for one that numpy doesn't have."""
    try:
        dtype = helper.tensor_dtype_to_np_dtype(kind)
    except (KeyError, TypeError, ValueError):
        return ""
    return str(dtype.name)


def _sizes(kind: onnx.TypeProto) -> list[int]:
    axes = kind.tensor_type.shape.dim
    return [axis.dim_value for axis in axes]


def _is_small(kind: onnx.TypeProto) -> bool:
    return math.prod(_sizes(kind)) <= _SMALL


def _is_known(kind: onnx.TypeProto | None) -> bool:
    """Return whether all axes of a tensor are numbers."""
    if kind is None or not kind.tensor_type.HasField("shape"):
        return False
    axes = kind.tensor_type.shape.dim
    return all(axis.WhichOneof("value") == "dim_value" for axis in axes)
