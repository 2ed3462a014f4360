"""ONNX models that tests put together node by node."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class ModelBuilder:
    """An ONNX model of floats.

    Names of tensors are separated by spaces. The shapes of outputs are left open.
    """

    def __init__(self, opset: int = 13) -> None:
        self.imports = [helper.make_opsetid("", opset), helper.make_opsetid("mine", 1)]
        self._nodes: list[onnx.NodeProto] = []
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []
        self._weights: list[onnx.TensorProto] = []

    def add_input(self, name: str, *sizes: int | str | None) -> None:
        """Add an input; sizes of free axes are names or None."""
        value = helper.make_tensor_value_info(name, TensorProto.FLOAT, list(sizes))
        self._inputs.append(value)

    def add_output(self, name: str, *shape: int | str) -> None:
        """Add an output of a shape; without one it is unknown."""
        value = helper.make_tensor_value_info(name, TensorProto.FLOAT, shape or None)
        self._outputs.append(value)

    def add_weight(self, name: str, *shape: int) -> None:
        """Add a weight of zeros."""
        array = np.zeros(shape, np.float32)
        self._weights.append(numpy_helper.from_array(array, name))

    def add_numbers(self, name: str, *numbers: int) -> None:
        """Add a weight of whole numbers."""
        array = np.array(numbers, np.int64)
        self._weights.append(numpy_helper.from_array(array, name))

    def add(self, kind: str, inputs: str, outputs: str, **attributes: Any) -> None:
        """Add a node of a type."""
        node = helper.make_node(kind, inputs.split(), outputs.split(), **attributes)
        self._nodes.append(node)

    def build(self) -> onnx.ModelProto:
        graph = helper.make_graph(self._nodes, "graph", self._inputs, self._outputs, self._weights)
        return helper.make_model(graph, opset_imports=self.imports, ir_version=8)

    def save(self, folder: Path) -> Path:
        path = folder / "model.onnx"
        onnx.save(self.build(), path)
        return path
